"""Shipping: trained models as folders that other programs run."""

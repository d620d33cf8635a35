"""Language models as teachers: prompts, the client, answers, what they cost, and which rows are asked."""

"""What a person sees of records: charts as plain numbers and words, and what draws them."""

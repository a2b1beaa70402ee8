"""Models: which there are, what is asked of them, and what comes back.

`catalogue` says what a name of `models:` means in this deployment; `vocabulary` is what a provider is asked and what it
answers, the contract of plug-ins; `chat` and `responses` translate it for the two protocols that OpenAI began, `turn`
puts an answer together and judges it, `structured` makes objects of answers, `faults` sorts what goes wrong. All of
that is pure. `endpoints` alone speaks to the world, through the openai SDK, which is imported where a model is called.
"""

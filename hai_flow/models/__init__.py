"""Models: the catalogue of them, the questions to them, and their answers.

`catalogue` resolves a name of `models:` in this deployment. `vocabulary` defines the request to a provider and its
answer: the contract of plug-ins. `chat` and `responses` translate both for the two protocols that OpenAI began, over
`event_stream` (bytes to events) and `answer` (one answer while it comes). `turn` puts an answer together and judges it,
`structured` makes objects of answers, `faults` sorts failures. All of that is pure. `endpoints` speaks to the world,
over `connections`.
"""

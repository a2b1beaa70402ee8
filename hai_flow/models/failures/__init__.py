"""The reports of providers about failed requests: their fields (`reports`) and their words (`words`).

`hai_flow.models.faults` makes errors of steps of them."""

"""One document with every verb and every kind of list, and with texts that no picture may take literally."""

EVERYTHING = r"""hai: flow/v1
name: everything
version: 3
title: 'Everything <at> once & "more" 审批'
input: {type: object, properties: {kind: {type: string}, names: {type: array, items: {type: string}}}}
state: {open: {type: boolean, default: false}, log: {type: array, default: []}, other: {type: string, default: ""}}
models: {smart: {provider: openai, model: gpt-5.4}}
tools: {shop: {python: acme.shop}}
triggers:
  - event: {type: order.paid}
  - schedule: {cron: "0 6 * * 1-5", timezone: Europe/Berlin, input: {}}
steps:
  - id: route
    switch:
      - when: input.kind == "refund"
        steps:
          - id: pay
            call: shop.refund
            with: {amount: 70.5}
            approval:
              when: args.amount >= 50.0
              from: role:support
              deadline: 1d
              on_deadline: [{escalate: {from: role:cfo, deadline: 1d}}, reject]
            on_reject:
              - say: no
              - return: {refunded: 0}
            catch:
              - errors: [tool.failed, step.timeout]
                steps:
                  - fail: "The shop </text> did not answer: ${{ error.message }} and so on, until the line is too long"
      - when: ${{ input.kind == "ask" }}
        steps:
          - id: form
            ask:
              title: 请选择一个尺码并填写你的联系方式以便我们可以联系到你以及其他的事情
              form: {type: object, properties: {size: {type: string}}}
      - default: true
        steps:
          - fail: {message: unknown kind, code: unknown}
  - id: race
    join: any
    parallel:
      event:
        - wait_for: {event: paid, match: 'event.data.order == "7"', deadline: 1d, on_deadline: {default: null}}
      clock:
        - wait: {for: 2d}
        - id: nested
          for_each:
            items: ${{ input.names }}
            key: ${{ item }}
            max_parallel: 4
            on_failure: isolate
            steps:
              - repeat:
                  max: 3
                  while: state.open
                  steps: [{say: "${{ item }}"}]
  - try:
      - emit: {custom: {name: progress, value: 3}}
      - http: {get: "https://example.com/${{ input.kind }}"}
        retry: {max: 2}
        timeout: 5s
      - llm: {model: smart, prompt: Hello}
      - agent: {model: smart, prompt: Hello, tools: [shop.find]}
      - run: child@2
    finally:
      - say: done
  - if: input.kind == "x"
    return: {a: 1}
  - id: decision
    approve: {title: "Ship \"${{ input.kind }}\"; ok?", from: [role:sre, "user:ann"], quorum: {role:sre: 1, any: 2}}
  - set: {/log/-: x, other: y}
catch:
  - steps: [{say: "sorry"}]
finally:
  - call: shop.close
output: {route: "${{ steps.route.output.case }}"}
""".encode()

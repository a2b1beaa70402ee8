"""Who decides and by when: policies, deciders, deadlines, forms, notifications. Begin with `policies`."""

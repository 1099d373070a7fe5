// Package serialize is the switch program called "swordbox": it tracks reliable connections, and hands the packets of
// those that rules select to the machine of the rule's mode, which puts requests in an order. It is glue: who talks to
// whom is known by swordbox/conntrack, what is selected by swordbox/rules, what happens then by swordbox/hard and
// swordbox/paper, and the switch's own connections are made by swordbox/dial.
package serialize

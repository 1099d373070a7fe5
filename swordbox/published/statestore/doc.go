// Package statestore counts in the memory of servers as "Generic External Memory for Switch Data
// Planes" (HotNets 2018) describes it. It has the paper's holes, listed below, and so shows which
// cases package swordbox/statestore handles. Never rely on its counters.
//
//   - Nothing is retransmitted, and ACKs and NAKs are ignored. If a FETCH_ADD is lost, or overtaken,
//     the server answers no later FETCH_ADD: the counters stop.
//   - The switch counts the FETCH_ADDs in flight, and lets at most the rule's depth be in flight. A
//     lost response lowers this limit by one for ever; when it reaches 0, the counters stop. A
//     response that arrives twice raises the limit by one, so that more FETCH_ADDs are in flight than
//     the server's NIC has resources for.
//   - A rule has one counter, as the paper's program has, and one accumulator. At the limit the switch
//     adds amounts up there, and sends the sum with the next request that finds room. When the requests
//     end, it stays in the switch.
//   - A crash of the switch loses the accumulator, and nothing says how much that was.
package statestore

// Package statestore counts in the memory of servers as "Generic External Memory for Switch Data
// Planes" (HotNets 2018) describes it, with what the paper leaves open: it shows which cases package
// swordbox/statestore handles. Never rely on its counters.
//
//   - Nothing is retransmitted, and ACKs and NAKs are ignored. If a FETCH_ADD is lost, or overtaken,
//     the server answers no later one any more: the counters stop.
//   - The switch counts the FETCH_ADDs in flight. A lost response takes one of depth for ever, and
//     when none is left the counters stop. A response that arrives twice returns one too many, so
//     that more are in flight than the server's NIC has resources for.
//   - At the limit the switch adds up in one accumulator for the whole rule, and the next request that
//     finds room sends it: what other flows have counted goes to the counter of that one.
//   - The accumulator is sent with a request alone. When the requests end, it stays in the switch.
//   - A crash of the switch loses the accumulator, and nothing says how much that was.
package statestore

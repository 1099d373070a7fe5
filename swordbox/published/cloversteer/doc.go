// Package cloversteer steers the requests of Clover as the SwordBox paper describes it (§7), with
// the paper's holes. It shows which cases package swordbox/cloversteer handles, and what that
// costs. Never keep data behind it.
//
//   - Addresses, queue pair and UDP source port name a connection. If a NIC changes this port, the switch knows nothing of the connection: the next append
//     is not recognised, and no retransmission of what came by the former port (hole 23).
//   - The switch recognises a data WRITE by its size. It remembers the key and the address of the last
//     one of each connection, and the key of each address in a table of history.
//   - There are 256 registers for tails, as in the public P4 program, or as many as the rule says.
//     The remainder of a key selects its register, so keys k and k+256 share a tail (hole 46): an
//     append to one of them goes to the chain of the other.
//   - The switch takes a compare-and-swap for an append of the last data WRITE of its connection (hole
//     36). If the key of that WRITE has a tail, the compare-and-swap is steered there. Then the node
//     of the WRITE becomes the tail, even if the compare-and-swap fails or is lost (holes 28, 29, 30).
//     Only the address is rewritten (holes 26, 27).
//   - A READ of a node in the table of history is steered to the tail of its key, even if the node
//     belongs to another key by now (hole 33).
//   - A retransmission is recognised by its PSN, which is not higher than the highest one that was seen;
//     a request that another one overtakes on its way to the switch is taken for one (hole 41). It
//     changes no table (hole 25), and is sent to the
//     address to which its first copy went, as the paper's draft says (hole 32). The switch remembers
//     that of the last 128 PSNs of each connection.
//   - Answers are forwarded unchanged. They show which appends need no repair.
//   - If an append has no answer for Config.Repair, the control plane repairs it: it sends the
//     append again, with the same operands, on a switch's connection to the server (holes 30 and
//     31). If the append was lost, the chain is complete again, even if the client is dead. The
//     switch forgets unanswered appends when it restarts, and after a second without such a
//     connection. Repairs need a rule with a service, to which the switch connects.
package cloversteer

// Package cloversteer steers the requests of Clover as the SwordBox paper describes it (§7 and §8
// of its notes), with its holes: it shows which cases package swordbox/cloversteer handles, and
// what that costs. Never keep data behind it.
//
//   - A data WRITE is recognised by its size. The switch remembers its key and address for its
//     connection, and the key of the address in a table of history.
//   - There are 256 registers for tails, as in the public P4 program, or as many as the rule says.
//     The remainder of a key selects its register, so keys k and k+256 share a tail (hole 46): an
//     append to one of them goes to the chain of the other.
//   - A compare-and-swap belongs to the last data WRITE of its connection (hole 36). If its key has
//     a tail, the compare-and-swap is steered there; then the node of the last WRITE becomes the
//     tail, even if the compare-and-swap fails or is lost (holes 28, 29, 30). Only the address is
//     rewritten (holes 26, 27).
//   - A READ of a node in the table of history is steered to the tail of its key, even if the node
//     belongs to another key by now (hole 33).
//   - A retransmission is recognised by its PSN, changes no table (hole 25), and is forwarded to
//     the address that its client named (hole 32).
//   - Answers are forwarded unchanged; they show which appends need no repair.
//   - An append that was not answered for Config.Repair is sent again by the control plane, on a
//     switch's connection to the server, as it was sent the first time (holes 30 and 31): if it was
//     lost, the chain is complete again, even if its client is dead. The switch loses this
//     knowledge when it restarts, and after a second without such a connection. Repairs need a rule
//     with a service, as switch's connections of hardened rules do.
package cloversteer

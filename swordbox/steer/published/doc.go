// Package published steers the requests of Clover as the SwordBox paper describes it (§7 and §8 of its notes), with its holes: it
// is there to show what package steer is careful about, and what that care costs. Never keep data behind it.
//
//   - A data WRITE is known by its size. Its key and its address are remembered for its connection, its address with the key in
//     a table of history.
//   - A compare-and-swap belongs to the last data WRITE of its connection (hole 36). If its key has a tail, it goes there; then the
//     node of the last WRITE is the tail, whatever becomes of the compare-and-swap (holes 28, 29, 30). Only the address is
//     rewritten (holes 26, 27).
//   - A READ of a node in the table of history goes to the tail of its key, also where the entry has been given to another key since
//     (hole 33).
//   - What was sent again is recognised by its PSN, changes no table (hole 25), and goes where its client said (hole 32).
//   - Answers are passed as they are; they show which appends need no repair.
//   - An append that was not answered for Config.Repair is sent by the control plane, on a connection of its own to the server, as it
//     was sent the first time (holes 30 and 31): if it was lost, its client dead or not, the chain is whole again. That knowledge dies
//     with the switch, and after a second without such a connection. It takes a rule with a service, as mode hard does for its connections.
package published

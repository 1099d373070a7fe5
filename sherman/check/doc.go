// Package check reads a whole tree of Sherman and proves its structure:
//
//   - the pages of each level are a chain that begins at the lowest key, ends at the highest, and leaves nothing out and
//     nothing twice;
//   - what an internal page says of its children is true, and they are all on the level below;
//   - records are in the range of their page, no key is there twice, and sorted where the layout wants them sorted;
//   - lock words are free, or held by somebody who lives;
//   - pages that nothing leads to are no more than those that clients had in their hands.
//
// It reads by a function, so that it works over any way to the memory, and most of it in large pieces: a tree of ten million keys
// is checked in seconds. It can read a tree that is in use: pages never change their lowest key and only ever lose keys to the
// right, so that a page that was read later than the one to its left fits it; what seems to be missing is read again.
package check

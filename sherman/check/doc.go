// Package check reads a whole Sherman tree and checks its structure. In a valid tree
//
//   - the pages of each level are a chain that begins at the lowest key, ends at the highest, and
//     covers every key once;
//   - every child that an internal page names begins at the key of its separator and is on the
//     level below;
//   - records are in the range of their page, no key occurs twice, and records are sorted where the
//     layout requires it;
//   - lock words are free, or owners that are alive hold them;
//   - written pages to which no pointer leads are at most as many as interrupted clients may leave.
//
// The caller passes the function that reads memory, so the package works with every kind of access.
// The check reads most of the tree in large pieces: a tree of ten million keys takes seconds.
// Clients may use the tree meanwhile. A page's lowest key does not grow, and splits take keys only
// from its right end. So a page fits its left neighbour even if it was read later than the
// neighbour. If a page does not fit or seems to be missing, the check reads it again.
package check

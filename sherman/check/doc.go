// Package check reads a whole Sherman tree and checks its structure. In a whole tree
//
//   - the pages of each level are a chain that begins at the lowest key, ends at the highest, and
//     covers every key once;
//   - every child that an internal page names begins at the key of its separator and is on the
//     level below;
//   - records are in the range of their page, no key occurs twice, and records are sorted where the
//     layout requires it;
//   - lock words are free, or held by living owners;
//   - pages that no page names are at most as many as interrupted clients may have left.
//
// A function of the caller reads the memory, so the package works with every kind of access. It
// reads most of the tree in large pieces: a tree of ten million keys takes seconds. The tree may be
// in use: pages never change their lowest key and only ever lose keys to the right, so that a page
// fits the one to its left if it was read later; a page that does not fit, or seems to be missing,
// is read again.
package check

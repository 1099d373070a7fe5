// Package layout is what the tree Sherman keeps in remote memory, byte for byte: addresses, the superblock of each memory server,
// pages, records, lock words. It does no I/O: whoever reads or writes remote memory hands in bytes.
//
// A page covers the keys from Lowest up to Highest, which itself belongs to Sibling, the page to the right on the same level. Pages
// of level 0 are leaves; records of higher ones name children, Leftmost the child for keys below the first record. A page is
// never freed, never changes its level or its Lowest, and its Highest only ever falls: so every pointer that was once right leads
// to the key, perhaps by way of siblings.
//
// Two kinds of page:
//
//   - Sound, the default. All that one operation changes in a page that others can reach lies in one line of 64 bytes, which memory
//     shows whole (softrnic/mem.LineSize), and so does a NIC: a change is seen or not, and a writer that dies in the middle of an
//     operation leaves either the old page or the new one. A split is the write of the header's line: what has moved to the
//     sibling stays behind as rubbish outside of the range, and is written over by later records. Records of internal pages are
//     unsorted for the same reason. Each record carries the epoch of its page, which counts splits: a reader that meets a
//     record younger than the header that it has read has read across a split and reads again. So a page whose lines were
//     read at different times says of each key something that was true at one moment of the read.
//   - Faithful, as published (SIGMOD 2022): versions of 8 bits at both ends of a page and of 4 bits at both ends of a record.
//     Neither is enough against copies that are torn (see the tests), nor against a writer that dies.
package layout

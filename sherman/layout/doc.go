// Package layout describes the remote memory of Sherman's tree byte for byte: addresses, the
// superblock of each memory server, pages, records, lock words. It does no I/O: callers read and
// write remote memory and pass the bytes.
//
// A page covers the keys from Lowest to below Highest. At Highest begins Sibling, the page to the
// right on the same level. Pages of level 0 are leaves. Records of pages on higher levels name
// children; Leftmost is the child for keys below the first record. The level of a page never
// changes, and its Lowest and Highest only decrease. A page that has left the tree (see Stage) is
// reused only under another address. Therefore a pointer that was once right leads to the key,
// perhaps through siblings, or to memory where the client notices that its page is gone.
//
// There are three kinds of page:
//
//   - Hardened, the default. Everything that one operation changes in a reachable page lies in one
//     line of 64 bytes, which memory (softrnic/mem.LineSize) and NICs read and write as a whole. So
//     a reader sees a change completely or not at all. A writer that dies leaves the old page or
//     the new one. A split is the WRITE of the header's line: the records that have moved to the
//     sibling remain in the old page, outside of its range, until later records overwrite them. For
//     the same reason, records of internal pages are not sorted. Each record has the epoch of its
//     page, which counts splits. If a reader finds a record that is younger than the header, the
//     page was split during the READ, and the client reads it again. So even if the lines of a page
//     are read at different times, the result for each key was true at one moment of the READ. The
//     exception are keys that a page takes over from a closed one during the READ (see Stage).
//   - Published, as in the paper (SIGMOD 2022): versions of 8 bits at both ends of a page and of 4
//     bits at both ends of a record. They do not protect against torn copies in all cases (see the
//     tests), nor against a writer that dies.
//   - Checksummed, as in FG+, the baseline of that paper: records are sorted and have no versions,
//     every change writes the whole page, and a checksum detects torn copies. A writer that dies
//     leaves the old page or the new one only if the page fits into one packet.
package layout

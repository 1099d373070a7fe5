// Package layout describes the remote memory of Sherman's tree byte for byte: addresses, the
// superblock of each memory server, pages, records, lock words. It does no I/O: callers read and
// write remote memory and pass the bytes.
//
// A page covers the keys from Lowest up to Highest, which itself belongs to Sibling, the page to
// the right on the same level. Pages of level 0 are leaves. Records of higher levels name children;
// Leftmost is the child for keys below the first record. A page never changes its level, its Lowest
// and its Highest only decrease, and a page that has left the tree (see Stage) is reused only
// under another address: so a pointer that was once right leads to the key, perhaps through
// siblings, or to a page that is not the one that it names.
//
// There are three kinds of page:
//
//   - Hardened, the default. Everything that one operation changes in a page that others can reach
//     lies in one line of 64 bytes, which memory (softrnic/mem.LineSize) and NICs read and write as
//     a whole: a change is seen or not, and a writer that dies during an operation leaves either
//     the old page or the new one. A split is the WRITE of the header's line: the records that have
//     moved to the sibling remain in the old page outside of its range, until later records
//     overwrite them. Records of internal pages are unsorted for the same reason. Each record
//     carries the epoch of its page, which counts splits: a reader that finds a record younger than
//     the header that it has read has read during a split, and reads again. So even if the lines of
//     a page were read at different times, the result for each key was true at one moment of the
//     READ. The exception are keys that a page takes over from a closed one during the READ (see
//     Stage).
//   - Published, as in the paper (SIGMOD 2022): versions of 8 bits at both ends of a page and of 4
//     bits at both ends of a record. Neither protects against torn copies in all cases (see the
//     tests), nor against a writer that dies.
//   - Checksummed, as in FG+, the baseline of that paper: records are sorted and have no versions,
//     every change writes the whole page, and a checksum of the page detects torn copies. A writer
//     that dies leaves the old page or the new one only if the page fits into one packet.
package layout

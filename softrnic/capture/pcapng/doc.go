// Package pcapng reads and writes capture files: it reads classic pcap and pcapng, and writes
// pcapng with several named interfaces, nanosecond times and a comment on every packet for which
// the caller gives one. It works on io.Reader and io.Writer and opens no files.
//
// It reads classic pcap of either byte order with microseconds or nanoseconds; pcapng sections of
// either byte order, their interfaces (name, link type, time resolution and offset), enhanced
// packet blocks with their comments, and simple packet blocks. Blocks and options of other kinds
// are skipped. The constants below limit all sizes that a file can declare, so that a broken file
// causes an error and no large allocation.
//
// The formats are those of the IETF opsawg drafts draft-ietf-opsawg-pcap and
// draft-ietf-opsawg-pcapng.
package pcapng

// LinkType is the kind of header with which the bytes of a packet start.
type LinkType uint16

// Ethernet is the link type of packets that start at the destination MAC.
const Ethernet LinkType = 1

// Limits of files that are read and written.
const (
	// MaxPacket is the longest packet in bytes, as in tcpdump.
	MaxPacket = 256 << 10
	// maxComment is the longest comment in bytes: option lengths have 16 bits.
	maxComment = 0xffff
	// maxInterfaces is the largest number of interfaces in a section.
	maxInterfaces = 1 << 12
	// maxBlock is the longest block that is read into memory. A longer block is an error, unless a
	// Reader does not know its kind: then the Reader skips the block.
	maxBlock = MaxPacket + 4*maxComment
)

// Block types.
const (
	blockSection   uint32 = 0x0a0d0d0a
	blockInterface uint32 = 1
	blockSimple    uint32 = 3
	blockEnhanced  uint32 = 6
)

// Option codes. Codes above 1 have another meaning in each kind of block.
const (
	optEnd      uint16 = 0
	optComment  uint16 = 1
	optAppl     uint16 = 4  // section header: the program that wrote the file
	optName     uint16 = 2  // interface: its name
	optTSResol  uint16 = 9  // interface: time unit
	optTSOffset uint16 = 14 // interface: seconds to add to all times
)

// Magic numbers, as read in the right byte order.
const (
	magicSection uint32 = 0x1a2b3c4d
	magicMicros  uint32 = 0xa1b2c3d4
	magicNanos   uint32 = 0xa1b23c4d
)

// Sizes in bytes.
const (
	blockHeaderLen = 8  // type and total length
	blockFrameLen  = 12 // a block's header, and the total length once more at its end
	optHeaderLen   = 4
	sectionLen     = 16 // fixed part of a section header's body
	interfaceLen   = 8
	simpleLen      = 4
	enhancedLen    = 20
)

// pad4 returns n rounded up to a multiple of 4: all fields of a pcapng file are padded to such a
// length.
func pad4(n int) int { return (n + 3) &^ 3 }

// Package memgrant is a part of the protocol of the memory service: the answer that tells a client,
// or the switch, where the service's memory is. With it they can make one-sided operations. Package
// memservice has the rest of the protocol. Numbers are big-endian:
//
//	0 version | 1 kind | 2 connection 8 | 10 boot 8 | 18 memory 20 | 38 locks 20 | 58 data of a worker
//	region   address 8 | R_Key 4 | length 8
//
// The package does not connect, and knows no other message of the service.
package memgrant

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Version is the first byte of all messages of a memory service. Kind is the second byte of the
// answer to a connect request.
const (
	Version = 1
	Kind    = 1
)

// RegionLen is the length of an encoded region. Len is the length of an encoded grant, without
// version and kind. Both are in bytes.
const (
	RegionLen = 20
	Len       = 16 + 2*RegionLen
)

// Region is memory that a peer may access.
type Region struct {
	// Addr is the virtual address of the region's first byte.
	Addr uint64
	RKey uint32
	// Len is the region's length in bytes.
	Len int
}

// AppendTo appends the encoding of a region, RegionLen bytes.
func (r Region) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, r.Addr)
	b = binary.BigEndian.AppendUint32(b, r.RKey)
	return binary.BigEndian.AppendUint64(b, uint64(r.Len))
}

// Parse decodes a region at the beginning of b.
func (r *Region) Parse(b []byte) error {
	if len(b) < RegionLen {
		return fmt.Errorf("a region of %d bytes in a message: want %d", len(b), RegionLen)
	}
	n := binary.BigEndian.Uint64(b[12:])
	if n > math.MaxInt {
		return fmt.Errorf("a region of %d bytes: want at most %d", n, math.MaxInt)
	}
	*r = Region{Addr: binary.BigEndian.Uint64(b), RKey: binary.BigEndian.Uint32(b[8:]), Len: int(n)}
	return nil
}

// Grant is the memory to which a service gives access on a connection.
type Grant struct {
	// Conn identifies the connection, Boot the incarnation of the service. The contents of Locks
	// are lost when an incarnation ends.
	Conn, Boot uint64
	// Region is the region that all clients share, or one for this connection alone. Locks is device
	// memory with lock words; its addresses begin at 0. A Len of 0 means that there is no such memory.
	Region
	Locks Region
}

// AppendTo appends the encoding of a grant, Len bytes, without version and kind.
func (g *Grant) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, g.Conn)
	b = binary.BigEndian.AppendUint64(b, g.Boot)
	return g.Locks.AppendTo(g.Region.AppendTo(b))
}

// Parse decodes a grant at the beginning of b, which begins behind version and kind.
func (g *Grant) Parse(b []byte) error {
	if len(b) < Len {
		return fmt.Errorf("a grant of %d bytes: want %d", len(b), Len)
	}
	g.Conn, g.Boot = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	return errors.Join(g.Region.Parse(b[16:]), g.Locks.Parse(b[16+RegionLen:]))
}

// Of decodes the grant in the private data of a REP. It returns an error if the REP is not the
// answer of a memory service.
func Of(private []byte) (g Grant, err error) {
	if len(private) < 2+Len || private[0] != Version || private[1] != Kind {
		return Grant{}, fmt.Errorf("the service's answer of %d bytes is not that of a memory service of version %d; "+
			"name a service that lends memory", len(private), Version)
	}
	return g, g.Parse(private[2:])
}

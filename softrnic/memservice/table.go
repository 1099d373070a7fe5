package memservice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// ErrFull means that no word of a table is free.
var ErrFull = errors.New("no word of the table is free")

// maxTable is the largest number of words of a table. tablePiece is the number of words that the
// service reads at a time.
const (
	maxTable   = 1 << 24
	tablePiece = 512
)

// table is a range of words in the shared region.
type table struct {
	off   uint64
	words uint32
}

// Take makes the memory service of a host claim a word in a table of the shared region, and returns
// the index of the word. `words` is the number of words of the table, `off` its offset in the
// region. The service writes value, which must not be 0, to the first word that is 0. Take fails
// with ErrFull if there is no such word, and with ErrFenced if the owner was fenced. After another
// error the outcome is unknown.
//
// number counts the requests of the owner to this service, from 1. If number is that of the owner's
// last request that got a word, the service returns the same word again. So a request whose outcome
// is unknown can be repeated. The service refuses a smaller number.
func Take(
	ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, owner, number uint32, off uint64, words int, value uint64, deadline clock.Time,
) (int, error) {
	r := request{kind: kindTake, owner: owner, number: number, table: table{off, uint32(words)}, value: value}
	a, err := call(ctx, d, to, r, deadline, "take a word of")
	return int(a.index), err
}

// take executes a Take request: it claims the first free word of a table and returns the index of
// this word. The service handles no other request meanwhile.
func (s *Server) take(r request) (uint32, error) {
	size, was := uint64(r.table.words)*8, s.owners.known[r.owner]
	switch {
	case s.owners.fenced(r.owner):
		return 0, ErrFenced
	case s.region == nil || size > uint64(s.region.Len()) || r.table.off > uint64(s.region.Len())-size:
		return 0, fmt.Errorf("a table of %d words at %d is outside of the shared region", r.table.words, r.table.off)
	case r.number == was.took.number:
		return was.took.index, nil
	case r.number < was.took.number:
		return 0, fmt.Errorf("request %d of owner %d is older than its request %d, which got a word", r.number, r.owner, was.took.number)
	}
	var b [8 * tablePiece]byte
	for from, words := 0, int(r.table.words); from < words; from += tablePiece {
		n := min(tablePiece, words-from)
		if err := s.region.ReadAt(b[:8*n], int(r.table.off)+8*from); err != nil {
			return 0, err
		}
		for i := range n {
			if binary.LittleEndian.Uint64(b[8*i:]) != 0 {
				continue
			}
			was.took = taken{r.number, uint32(from + i)}
			if err := s.owners.note(r.owner, was); err != nil {
				return 0, err
			}
			binary.LittleEndian.PutUint64(b[:], r.value)
			return was.took.index, s.region.WriteAt(b[:8], int(r.table.off)+8*(from+i))
		}
	}
	return 0, ErrFull
}

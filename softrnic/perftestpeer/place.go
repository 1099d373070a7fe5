package perftestpeer

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// place describes one end of a ping-pong. As text it is "LLLL:QQQQQQ:PPPPPP:" (LID, QPN, PSN) and
// 32 digits of GID, all hexadecimal, with a NUL.
type place struct {
	QPN wire.QPN
	PSN wire.PSN
	GID verbs.GID
}

// placeLen is the length of a place as text.
const placeLen = 52

// AppendTo appends the place as text. Its LID is 0, because RoCE has no LIDs.
func (p *place) AppendTo(b []byte) []byte {
	return fmt.Appendf(b, "0000:%06x:%06x:%032x\x00", uint32(p.QPN), uint32(p.PSN), p.GID[:])
}

// Parse parses a place. The programs accept numbers of any length up to the colon; this function
// accepts only the lengths that they write.
func (p *place) Parse(b []byte) error {
	if len(b) != placeLen || b[4] != ':' || b[11] != ':' || b[18] != ':' || b[placeLen-1] != 0 {
		return fmt.Errorf("%w: want LID:QPN:PSN:GID of 52 bytes, got %q", ErrFormat, b[:min(len(b), placeLen)])
	}
	var n [3]uint64
	for i, f := range [][]byte{b[0:4], b[5:11], b[12:18]} {
		var err error
		if n[i], err = digits(f); err != nil {
			return err
		}
	}
	var gid verbs.GID
	if _, err := hex.Decode(gid[:], b[19:51]); err != nil {
		return fmt.Errorf("%w: GID %q", ErrFormat, b[19:51])
	}
	*p = place{QPN: wire.QPN(n[1]), PSN: wire.PSN(n[2]), GID: gid}
	return nil
}

// digits parses a hexadecimal number of at most 16 digits.
func digits(b []byte) (uint64, error) {
	v, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is no hexadecimal number", ErrFormat, b)
	}
	return v, nil
}

// noAddress returns an error if gid is zero: then the peer was started without a GID index.
func noAddress(gid verbs.GID) error {
	if gid.IsZero() {
		return fmt.Errorf("the peer gave no GID: start it with a GID index (-g of ibv_*_pingpong, -x of perftest)")
	}
	return nil
}

package hostd

import (
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// MaxReadWords is how many words of 8 bytes one ReadRequest can read.
const MaxReadWords = 1 << 17

// readPatience bounds how long a read takes.
const readPatience = 5 * time.Second

// ReadRequest reads words from the region of a server's service "memory", by a READ of the host's
// NIC. The server's processor takes part only in making the connection.
type ReadRequest struct {
	// To is the name of a host, or an address.
	To string `json:"to"`
	// At is the offset of the first word in the region in bytes, a multiple of 8. Words is how many
	// words are read, 1 to MaxReadWords.
	At    uint64 `json:"at"`
	Words int    `json:"words"`
}

// ReadResult holds the words, as integers in the server's byte order, which is the byte order of
// this machine.
type ReadResult struct {
	Words []uint64 `json:"words"`
}

func (h *Host) read(r *http.Request, in ReadRequest) (res ReadResult, err error) {
	if in.Words < 1 || in.Words > MaxReadWords || in.At%8 != 0 {
		return res, control.Errorf(http.StatusBadRequest, "%d words at offset %d; want 1 to %d words at a multiple of 8", in.Words, in.At, MaxReadWords)
	}
	to, err := h.address(in.To)
	if err != nil {
		return res, err
	}
	err = h.app.do(r, "read from "+in.To, func(_ context.Context, v verbs.Context) (err error) {
		f, err := remotemem.New(remotemem.Config{Context: v, Buffer: 8 * in.Words})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		deadline := f.Runtime().Now().Add(readPatience)
		var region memservice.Region
		peer, err := f.AddPeer(to, 0, func(qp verbs.QP, deadline clock.Time) (err error) {
			region, err = memservice.Dial(h.conn, qp, to, rdmacm.Params{}, deadline)
			return err
		})
		if err == nil {
			err = f.Open(peer, deadline)
		}
		if err != nil {
			return err
		}
		if end := in.At + 8*uint64(in.Words); end < in.At || end > uint64(region.Len) {
			return control.Errorf(http.StatusBadRequest, "%s lends %d bytes; words up to %d are not in it", in.To, region.Len, end)
		}
		var op remotemem.Op
		f.Read(&op, remotemem.Target{Peer: peer, Addr: region.Addr + in.At, RKey: region.RKey}, 0, 8*in.Words)
		if err := f.Do(deadline, &op); err != nil {
			return err
		}
		b := make([]byte, 8*in.Words)
		if err := f.MR().ReadAt(b, 0); err != nil {
			return err
		}
		for ; len(b) > 0; b = b[8:] {
			res.Words = append(res.Words, binary.NativeEndian.Uint64(b))
		}
		return nil
	})
	return res, err
}

package tap

import (
	"errors"
	"io"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// MaxKept is the largest amount of memory for kept packets, in bytes.
const MaxKept = queueBytes

// ErrNothingKept is returned by Past if Keep was never called.
var ErrNothingKept = errors.New("the last packets are not kept: start the switch with RDMALAB_KEEP=4MiB in the environment of `rdmalab up`")

// past has the last packets of a hub in two buffers. When one is full, the older one is emptied and
// used next.
type past struct {
	reader
	old   []byte
	limit int
}

// Keep makes the hub keep the last packets in memory of the given size, for Past. It keeps the
// first snaplen bytes of each. This costs the switch about as much as a capture.
func (h *Hub) Keep(bytes, snaplen int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	const maxLinks = 512
	h.past = &past{limit: min(bytes, MaxKept) / 2, reader: reader{snaplen: snaplen, ready: make(chan struct{}, 1), counts: make([]count, 2*maxLinks)}}
	h.active.Store(true)
}

// add stores a frame. The caller holds the hub's mu.
func (p *past) add(unixNanos int64, id int, f *packetio.Frame, comment string) {
	if id >= len(p.counts) {
		return
	}
	if len(p.buf) > p.limit {
		p.old, p.buf = p.buf, p.old[:0]
	}
	p.reader.add(unixNanos, id, f, comment)
}

// Past writes the kept packets as pcapng, and returns their number.
func (h *Hub) Past(w io.Writer) (packets int, err error) {
	h.mu.Lock()
	if h.past == nil {
		h.mu.Unlock()
		return 0, ErrNothingKept
	}
	kept := append(slices.Clone(h.past.old), h.past.buf...)
	links := slices.Clone(h.links)
	h.mu.Unlock()
	out, err := pcapng.NewWriter(w)
	if err != nil {
		return 0, err
	}
	for _, l := range links {
		if l == "" {
			l = "gone"
		}
		for _, d := range []Direction{Up, Down} {
			if _, err := out.AddInterface(l+" "+d.String(), pcapng.Ethernet); err != nil {
				return 0, err
			}
		}
	}
	for len(kept) > 0 {
		var rec record
		rec, kept = next(kept)
		if err := out.WriteTruncated(rec.id, rec.unixNanos, rec.data, rec.length, rec.comment); err != nil {
			return packets, err
		}
		packets++
	}
	return packets, out.Flush()
}

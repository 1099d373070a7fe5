package tap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
)

// statsEvery is the least time between two reports of lost packets in a stream.
const statsEvery = time.Second

// Options say what a capture contains.
type Options struct {
	// Links are the names of the links; none means all.
	Links []string
	// Only selects one direction, "up" or "down"; "" means both.
	Only string
	// Commented selects only packets with a comment.
	Commented bool
	// Snaplen is the number of bytes that are kept of each packet; 0 means all.
	Snaplen int
	// Flush, if set, is called after each burst of packets, for a writer that buffers.
	Flush func()
}

// Summary has the numbers of written and lost packets of a capture.
type Summary struct{ Written, Lost uint64 }

// Capture writes a pcapng stream to w until ctx ends. The error is an error of w, wraps
// ErrUnknownLink or ErrTooMany, or says what is wrong with o.
func (h *Hub) Capture(ctx context.Context, w io.Writer, o Options) (Summary, error) {
	r, names, err := h.admit(o)
	if err != nil {
		return Summary{}, err
	}
	defer h.leave(r)
	out, err := pcapng.NewWriter(w)
	if err != nil {
		return Summary{}, err
	}
	for _, name := range names {
		if _, err := out.AddInterface(name, pcapng.Ethernet); err != nil {
			return Summary{}, err
		}
	}
	s := stream{reader: r, out: out, flush: o.Flush, counts: make([]count, len(names)), said: make([]uint64, len(names))}
	return s.run(ctx)
}

// admit makes a reader and adds it to the hub, both under the lock: the links cannot change in
// between.
func (h *Hub) admit(o Options) (*reader, []string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, names, err := h.reader(o)
	if err != nil {
		return nil, nil, err
	}
	return r, names, h.join(r)
}

// reader makes the queue of a capture, and returns the names of the interfaces that the capture
// has. The caller holds mu.
func (h *Hub) reader(o Options) (*reader, []string, error) {
	if o.Snaplen < 0 {
		return nil, nil, fmt.Errorf("snaplen %d is negative", o.Snaplen)
	}
	if o.Only != "" && o.Only != Up.String() && o.Only != Down.String() {
		return nil, nil, fmt.Errorf("direction %q is neither up nor down", o.Only)
	}
	links := o.Links
	if len(links) == 0 {
		links = h.named()
	}
	r := &reader{snaplen: o.Snaplen, commented: o.Commented, ready: make(chan struct{}, 1), ids: slices.Repeat([]int{-1}, 2*len(h.links))}
	var names []string
	for _, link := range links {
		i, err := h.index(link)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range []Direction{Up, Down} {
			if k := 2*i + int(d); r.ids[k] < 0 && (o.Only == "" || o.Only == d.String()) {
				r.ids[k] = len(names)
				names = append(names, link+" "+d.String())
			}
		}
	}
	r.counts = make([]count, len(names))
	return r, names, nil
}

// stream writes the packets of one capture from its reader's queue to out.
type stream struct {
	*reader
	out     *pcapng.Writer
	flush   func()    // Options.Flush
	spare   []byte    // the buffer for the next swap
	counts  []count   // the reader's counters at the last swap
	said    []uint64  // losses that were reported so far, by interface
	saidAt  time.Time // when losses were last reported
	written uint64
}

func (s *stream) run(ctx context.Context) (Summary, error) {
	err := s.push()
	for err == nil {
		select {
		case <-s.ready:
			if err = s.drain(); err == nil && time.Since(s.saidAt) >= statsEvery {
				err = s.statistics(false)
			}
		case <-ctx.Done():
			err = errors.Join(s.drain(), s.statistics(true), s.push())
			return s.summary(), err
		}
		err = errors.Join(err, s.push())
	}
	return s.summary(), err
}

// push writes all collected blocks to the writer of the capture, and calls flush.
func (s *stream) push() error {
	err := s.out.Flush()
	if s.flush != nil {
		s.flush()
	}
	return err
}

// drain writes the queued packets.
func (s *stream) drain() error {
	full := s.swap(s.spare, s.counts)
	s.spare = full
	for b := full; len(b) > 0; {
		var rec record
		rec, b = next(b)
		if err := s.out.WriteTruncated(rec.id, rec.unixNanos, rec.data, rec.length, rec.comment); err != nil {
			return err
		}
		s.written++
	}
	return nil
}

// statistics writes the number of lost packets if it has grown since the last report, or if final
// is set.
func (s *stream) statistics(final bool) error {
	now := time.Now()
	s.saidAt = now
	for id, c := range s.counts {
		if !final && c.lost == s.said[id] {
			continue
		}
		comment := ""
		if c.lost != 0 {
			comment = fmt.Sprintf("%d of %d packets are missing: the reader was too slow", c.lost, c.seen)
		}
		if err := s.out.WriteStatistics(id, now.UnixNano(), c.seen, c.lost, comment); err != nil {
			return err
		}
		s.said[id] = c.lost
	}
	return nil
}

func (s *stream) summary() Summary {
	sum := Summary{Written: s.written}
	for _, c := range s.counts {
		sum.Lost += c.lost
	}
	return sum
}

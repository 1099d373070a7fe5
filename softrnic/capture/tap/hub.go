package tap

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Limits of a hub.
const (
	// maxReaders is the largest number of captures at the same time.
	maxReaders = 16
	// queueBytes is the number of bytes by which a reader may lag behind.
	queueBytes = 8 << 20
	// maxComment is the largest length of a packet's comment in bytes.
	maxComment = 1024
)

// Errors of Capture.
var (
	ErrUnknownLink = errors.New("unknown link")
	ErrTooMany     = errors.New("too many captures run already")
)

// Direction is a direction on a link, seen from the host.
type Direction uint8

// Directions. They index the two interfaces of a link.
const (
	Up   Direction = iota // from the host to the switch
	Down                  // from the switch to the host
)

// String returns the direction's part of an interface's name.
func (d Direction) String() string {
	if d == Up {
		return "up"
	}
	return "down"
}

// Hub passes frames of one switch to any number of readers. Only the switch's goroutine calls
// Frame; any goroutine may call the other methods.
type Hub struct {
	active atomic.Bool

	mu      sync.Mutex // guards the fields below, and the ids of readers
	links   []string   // "" for a removed link
	readers []*reader
	past    *past // the last packets, for Past; nil means that the hub keeps none
}

// NewHub returns a hub for links; Frame names them by their index.
func NewHub(links []string) *Hub { return &Hub{links: slices.Clone(links)} }

// SetLink sets the name of the link with index i, which exists or is the next one; "" removes the
// link. Running captures go on without this link.
func (h *Hub) SetLink(i int, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i == len(h.links) {
		h.links = append(h.links, name)
		return
	}
	h.links[i] = name
	for _, r := range h.readers {
		if k := i * 2; k < len(r.ids) {
			r.ids[k], r.ids[k+1] = -1, -1
		}
	}
}

// Active reports whether a capture is running or the hub keeps packets for Past. If not, the switch
// need not call Frame.
func (h *Hub) Active() bool { return h.active.Load() }

// Readers returns the number of running captures, and the number of packets that they have lost so
// far.
func (h *Hub) Readers() (n int, lost uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.readers {
		r.mu.Lock()
		for _, c := range r.counts {
			lost += c.lost
		}
		r.mu.Unlock()
	}
	return len(h.readers), lost
}

// Frame passes a frame that crosses a link to the readers. A super-frame of RoCEv2 packets or 1RMA
// messages becomes several packets. The bytes are copied. Frame never waits for a reader and never
// fails.
func (h *Hub) Frame(unixNanos int64, link int, dir Direction, f packetio.Frame, comment string) {
	if !h.active.Load() {
		return
	}
	if len(comment) > maxComment {
		comment = comment[:maxComment]
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.past != nil {
		h.past.add(unixNanos, link*2+int(dir), &f, comment)
	}
	for _, r := range h.readers {
		k := link*2 + int(dir)
		if k >= len(r.ids) {
			continue // the link was added after the beginning of the capture
		}
		if id := r.ids[k]; id >= 0 && (comment != "" || !r.commented) {
			r.add(unixNanos, id, &f, comment)
		}
	}
}

// join adds a reader. The caller holds mu.
func (h *Hub) join(r *reader) error {
	if len(h.readers) == maxReaders {
		return fmt.Errorf("%w: %d", ErrTooMany, maxReaders)
	}
	h.readers = append(h.readers, r)
	h.active.Store(true)
	return nil
}

func (h *Hub) leave(r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers = slices.DeleteFunc(h.readers, func(x *reader) bool { return x == r })
	h.active.Store(len(h.readers) != 0 || h.past != nil)
}

// index returns the index of a link. The caller holds mu.
func (h *Hub) index(link string) (int, error) {
	i := slices.Index(h.links, link)
	if i < 0 || link == "" {
		return 0, fmt.Errorf("%w %.60q; %sthere are %s", ErrUnknownLink, link, nearest.Meant(link, h.named()), strings.Join(h.named(), ", "))
	}
	return i, nil
}

// named returns the links that have a name. The caller holds mu.
func (h *Hub) named() []string {
	return slices.DeleteFunc(slices.Clone(h.links), func(l string) bool { return l == "" })
}

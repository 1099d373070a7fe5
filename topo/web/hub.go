package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/rackapi"
	"github.com/rdmalab/rdmalab/topo/top/live"
)

const (
	// every is the time between two readings while a page is open.
	every = time.Second
	// fresh is how old a reading may be that a request gets.
	fresh = 900 * time.Millisecond
	// maxStreams bounds the streams of events that are open at a time.
	maxStreams = 64
	// maxPoints bounds the points of the history, and maxValues what they have in all.
	maxPoints = 300
	maxValues = 20000
	// sendWait is how long a client may take to read an event.
	sendWait = 10 * time.Second
)

// Point is what the history has of one reading.
type Point struct {
	// Time is in milliseconds since 1970.
	Time int64 `json:"time"`
	// Nodes has the rates of hosts by name.
	Nodes map[string]PointOf `json:"nodes"`
}

// PointOf has the rates of a host, per second.
type PointOf struct {
	Up     uint64 `json:"up"`   // bits
	Down   uint64 `json:"down"` // bits
	Drops  uint64 `json:"drops"`
	Resent uint64 `json:"resent"`
}

// hub reads the rack once a second while pages are open, and hands each reading to all of them.
type hub struct {
	source *live.Source
	finish func(*Rack) // fills what the hub does not know

	mu      sync.Mutex
	last    *Rack
	read    *live.Reading // to which last belongs
	text    []byte        // last as JSON, without its lists
	points  []Point
	readers map[chan []byte]struct{}
	stop    context.CancelFunc // of the sampler; nil while none runs
	work    sync.WaitGroup     // the sampler
	closed  bool
}

func newHub(source *live.Source, finish func(*Rack)) *hub {
	return &hub{source: source, finish: finish, readers: make(map[chan []byte]struct{})}
}

// now returns the state of the rack, as an object and as JSON without the lists. Neither may be changed.
func (h *hub) now(ctx context.Context) (*Rack, []byte, error) {
	g, err := h.source.Get(ctx)
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && g == h.read {
		return h.last, h.text, nil
	}
	var r *Rack
	if err != nil {
		r = gone(h.source.Name, err)
	} else {
		r = g.State(h.last)
	}
	h.finish(r)
	short := *r
	short.Detail, short.Lists = false, rackapi.Lists{} // these may be long, and pages do not show them
	text, err := json.Marshal(&short)
	if err != nil {
		return nil, nil, err
	}
	h.last, h.read, h.text = r, g, text
	h.remember(r)
	return r, text, nil
}

// remember adds a point to the history. The caller holds h.mu.
func (h *hub) remember(r *Rack) {
	if !r.Present {
		return
	}
	p := Point{Time: r.Time, Nodes: make(map[string]PointOf, len(r.Nodes))}
	for i := range r.Nodes {
		if n := &r.Nodes[i]; !n.IsSwitch() {
			p.Nodes[n.Name] = PointOf{Up: n.UpBits, Down: n.DownBits, Drops: n.DropsRate, Resent: n.ResentRate}
		}
	}
	h.points = append(h.points, p)
	if most := max(2, min(maxPoints, maxValues/max(1, len(p.Nodes)))); len(h.points) > most {
		h.points = append(h.points[:0], h.points[len(h.points)-most:]...)
	}
}

// history returns the points, oldest first.
func (h *hub) history() []Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Point{}, h.points...)
}

// join adds a reader, whose channel gets the newest state as JSON. It returns false if there are too many.
// leave must be called once.
func (h *hub) join() (states <-chan []byte, leave func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.readers) >= maxStreams {
		return nil, nil, false
	}
	ch := make(chan []byte, 1)
	h.readers[ch] = struct{}{}
	if h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		h.work.Go(func() { h.sample(ctx) })
	}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.readers, ch)
		if len(h.readers) == 0 && h.stop != nil {
			h.stop()
			h.stop = nil
		}
	}, true
}

// sample reads the rack until ctx ends.
func (h *hub) sample(ctx context.Context) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if _, text, err := h.now(ctx); err == nil {
			h.send(text)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// send hands a state to all readers. One that has not taken the state before gets this one instead.
func (h *hub) send(text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.readers {
		select {
		case <-ch:
		default:
		}
		ch <- text // there is room: only send writes, under the lock
	}
}

// close ends the sampler.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
	h.mu.Unlock()
	h.work.Wait()
}

// serveEvents streams server-sent events: one called rack at once and then every second.
func (h *hub) serveEvents(w http.ResponseWriter, r *http.Request) {
	states, leave, ok := h.join()
	if !ok {
		control.WriteError(w, control.Errorf(http.StatusServiceUnavailable, "%d pages are open already", maxStreams))
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	// The deadline for reading the request would end the stream.
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case text := <-states:
			if err := rc.SetWriteDeadline(time.Now().Add(sendWait)); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return
			}
			if _, err := w.Write(append(append([]byte("event: rack\ndata: "), text...), "\n\n"...)); err != nil {
				return
			}
			if err := rc.Flush(); err != nil {
				return
			}
		}
	}
}

package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/ladder"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/control"
)

const (
	// maxKept bounds the packets of a recording, as half of them before the first that a fault or the switch
	// touched, and half of them from it on. maxSaved is how many recordings are kept.
	maxKept  = 1200
	maxSaved = 8
	// maxRead bounds the packets that a recording reads; with a fault it may wait longer for it.
	maxRead       = 20000
	maxInjectRead = 400000
	// snaplen is how many bytes of a packet are captured: all of a connection manager's datagram.
	snaplen = 352
	// maxSeconds and injectSeconds are how long a recording lasts, the second one with a fault.
	maxSeconds    = 10
	injectSeconds = 3
	// maxStream bounds the bytes of a stream that are read.
	maxStream = 256 << 20
	// maxWaiting is how many packets wait for the name of a rule that may have hit one of them.
	maxWaiting = 8192
	// maxLinks bounds the links that a request names.
	maxLinks = 64
)

// RecordRequest is the body of POST /api/v1/ladders.
type RecordRequest struct {
	// Links are the names of hosts; none means all links.
	Links []string `json:"links,omitempty"`
	// Seconds is how long the recording lasts at most, 0 for one second. It ends before if it has enough.
	Seconds float64 `json:"seconds,omitempty"`
	// Touched leaves out packets that neither a fault nor the switch has touched.
	Touched bool `json:"touched,omitempty"`
	// Past takes the last packets that the switch has kept (RDMALAB_KEEP) instead of the next ones.
	Past bool `json:"past,omitempty"`
}

// Recording describes packets that were captured.
type Recording struct {
	ID int `json:"id"`
	// Time is when it ended, in milliseconds since 1970.
	Time    int64 `json:"time"`
	Packets int   `json:"packets"`
	// Touched is how many of them a fault or the switch has touched; First is the row of the ladder that
	// has the first of them, 0 if there is none.
	Touched int `json:"touched"`
	First   int `json:"first,omitempty"`
	// Skipped packets came before the others and were left out.
	Skipped int `json:"skipped"`
	// Ladder is the address of the ladder.
	Ladder string `json:"ladder"`

	pcap []byte
}

// recorder captures packets, one recording at a time, and keeps the last ones.
type recorder struct {
	stream func(ctx context.Context, path string) (io.ReadCloser, error)
	turn   chan struct{}

	mu    sync.Mutex
	saved []*Recording
	next  int
}

// kept is a packet of a recording.
type kept struct {
	name    string
	time    int64
	data    []byte
	length  int
	comment string
}

// record makes a recording of the packets around the first one that was touched. If do is not nil, it is
// called when the capture runs: it returns the names of fault rules, and the recording is of the packets
// around the first that one of them has hit. Its error ends the recording.
func (c *recorder) record(ctx context.Context, q *RecordRequest, most int, do func() ([]string, error)) (*Recording, error) {
	if q.Seconds < 0 || q.Seconds > maxSeconds || len(q.Links) > maxLinks {
		return nil, control.Errorf(http.StatusBadRequest, "a recording lasts at most %d seconds and names at most %d links", maxSeconds, maxLinks)
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, control.Errorf(http.StatusServiceUnavailable, "another recording runs")
	}
	lasting := time.Duration(q.Seconds * float64(time.Second))
	if lasting == 0 {
		lasting = time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, lasting+askWait)
	defer cancel()
	stream, err := c.stream(ctx, q.path(lasting))
	if err != nil {
		return nil, streamError(err)
	}
	defer stream.Close() // it was only read
	in, err := pcapng.NewReader(io.LimitReader(stream, maxStream))
	if err != nil {
		return nil, streamError(err)
	}
	w := window{size: maxKept / 2}
	did := make(chan error, 1)
	if do == nil {
		w.rules.Store(&[]string{})
		did <- nil
	} else {
		w.size = maxWaiting
		go func() {
			rules, err := do()
			if err != nil {
				cancel() // ends the stream
			}
			w.rules.Store(&rules)
			did <- err
		}()
	}
	err = w.read(in, most)
	if failed := <-did; failed != nil {
		return nil, failed
	}
	w.arm() // the stream may have ended before the names were known
	if err != nil && ctx.Err() == nil && len(w.before)+len(w.behind) == 0 {
		return nil, streamError(err)
	}
	return c.save(&w)
}

// path is the request to the switch.
func (q *RecordRequest) path(lasting time.Duration) string {
	if q.Past {
		return "/past"
	}
	v := url.Values{"snaplen": {strconv.Itoa(snaplen)}, "for": {lasting.String()}, "link": q.Links}
	if q.Touched {
		v.Set("commented", "1")
	}
	return "/capture?" + v.Encode()
}

func streamError(err error) error {
	var answered *control.Error
	if errors.As(err, &answered) {
		return err
	}
	return control.Errorf(http.StatusBadGateway, "the switch sends no packets: %v", err)
}

// window keeps the packets around the first that was touched.
type window struct {
	// rules are the names of the fault rules that count as a touch, any comment if it is empty. Nothing
	// counts while it is nil.
	rules atomic.Pointer[[]string]
	size  int // of the ring

	armed   bool
	before  []kept // a ring, until a packet was touched
	at      int    // the place of the oldest in the ring
	behind  []kept // the first touched packet, and those that follow
	skipped int
}

// read reads until the window is full, `most` packets were read, or the stream ends.
func (w *window) read(in *pcapng.Reader, most int) error {
	var p pcapng.Packet
	for range most {
		if err := in.Next(&p); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if p.LinkType == pcapng.Ethernet && w.add(&p) {
			return nil
		}
	}
	return nil
}

// arm looks for the first touch among the packets that came before it was known what counts as one.
func (w *window) arm() {
	if w.armed || w.rules.Load() == nil {
		return
	}
	w.armed = true
	list := slices.Concat(w.before[w.at:], w.before[:w.at])
	w.before, w.at = list, 0
	if i := slices.IndexFunc(list, func(k kept) bool { return w.touches(k.comment) }); i >= 0 {
		w.before, w.behind = list[:i], slices.Clone(list[i:])
	}
}

// touches reports whether a comment says that the packet was touched.
func (w *window) touches(comment string) bool {
	rules := *w.rules.Load()
	if len(rules) == 0 {
		return comment != ""
	}
	words := strings.FieldsFunc(comment, func(c rune) bool { return c == ' ' || c == ',' || c == ':' || c == ';' })
	return slices.ContainsFunc(rules, func(id string) bool { return slices.Contains(words, id) })
}

// add takes a packet, and reports whether the window is full.
func (w *window) add(p *pcapng.Packet) (full bool) {
	w.arm()
	var k kept
	switch {
	case len(w.behind) > 0 || w.armed && len(p.Comments) > 0 && w.touches(joined(p.Comments)):
		k.set(p)
		w.behind = append(w.behind, k)
		return len(w.behind) >= maxKept/2
	case len(w.before) < w.size:
		k.set(p)
		w.before = append(w.before, k)
	default:
		w.before[w.at].set(p)
		w.at = (w.at + 1) % len(w.before)
		w.skipped++
	}
	return false
}

// packets returns the packets in their order, at most maxKept.
func (w *window) packets() []kept {
	list := slices.Concat(w.before[w.at:], w.before[:w.at])
	room := maxKept/2 + max(0, maxKept/2-len(w.behind))
	if more := len(list) - room; more > 0 {
		list = list[more:]
		w.skipped += more
	}
	return append(list, w.behind[:min(len(w.behind), maxKept-len(list))]...)
}

func joined(comments []string) string { return strings.Join(comments, "; ") }

// set copies a packet, into the memory that k has.
func (k *kept) set(p *pcapng.Packet) {
	k.name, k.time, k.length, k.comment = p.Name, p.Time, p.OrigLen, joined(p.Comments)
	k.data = append(k.data[:0], p.Data...)
}

// save writes a recording and keeps it.
func (c *recorder) save(w *window) (*Recording, error) {
	list := w.packets()
	var buf bytes.Buffer
	out, err := pcapng.NewWriter(&buf)
	if err != nil {
		return nil, err
	}
	ids, touched := make(map[string]int), 0
	for i := range list {
		k := &list[i]
		if k.comment != "" {
			touched++
		}
		id, ok := ids[k.name]
		if !ok {
			if id, err = out.AddInterface(k.name, pcapng.Ethernet); err != nil {
				return nil, err
			}
			ids[k.name] = id
		}
		if err := out.WriteTruncated(id, k.time, k.data, k.length, k.comment); err != nil {
			return nil, err
		}
	}
	if err := out.Flush(); err != nil {
		return nil, err
	}
	rec := &Recording{Time: time.Now().UnixMilli(), Packets: len(list), Touched: touched, Skipped: w.skipped, pcap: buf.Bytes()}
	if m, err := rec.model(); err == nil {
		rows := m.Rows()
		i := slices.IndexFunc(rows, func(r ladder.Row) bool { return len(r.Comments) > 0 && w.armed && w.touches(joined(r.Comments)) })
		if i < 0 {
			i = slices.IndexFunc(rows, func(r ladder.Row) bool { return len(r.Comments) > 0 || r.Lost })
		}
		if i >= 0 {
			rec.First = rows[i].Number
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	rec.ID = c.next
	rec.Ladder = fmt.Sprintf("/api/v1/ladders/%d", rec.ID)
	c.saved = append(c.saved, rec)
	if len(c.saved) > maxSaved {
		c.saved = slices.Delete(c.saved, 0, 1)
	}
	return rec, nil
}

// model makes the ladder of a recording.
func (rec *Recording) model() (*ladder.Model, error) {
	m := ladder.New()
	d, err := dump.New(io.Discard, dump.Config{Each: m.Add})
	if err != nil {
		return nil, err
	}
	return m, d.Dump("", bytes.NewReader(rec.pcap))
}

// find returns a recording that is kept.
func (c *recorder) find(id string) (*Recording, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rec := range c.saved {
		if strconv.Itoa(rec.ID) == id {
			return rec, nil
		}
	}
	return nil, control.Errorf(http.StatusNotFound, "there is no recording %.20q; the last %d are kept", id, maxSaved)
}

// serveLadder draws a recording: as a page, or as format= says.
func (s *Site) serveLadder(w http.ResponseWriter, r *http.Request) {
	rec, err := s.recorder.find(r.PathValue("id"))
	if err != nil {
		control.WriteError(w, err)
		return
	}
	format := r.URL.Query().Get("format")
	var buf bytes.Buffer
	kind := ""
	if format == "pcapng" {
		kind = "application/x-pcapng"
		w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%d.pcapng"`, rackfile.DefaultName, rec.ID))
		buf.Write(rec.pcap)
	} else {
		m, err := rec.model()
		if err == nil {
			kind, err = draw(&buf, m, format)
		}
		if err != nil {
			control.WriteError(w, err)
			return
		}
	}
	w.Header().Set("Content-Type", kind)
	// The ladder has its style in itself, and no script; only this server's page may frame it.
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'")
	_, _ = w.Write(buf.Bytes()) // fails if the client has gone
}

// draw writes a ladder in a format, and returns its media type.
func draw(out io.Writer, m *ladder.Model, format string) (string, error) {
	switch format {
	case "", "html":
		return "text/html; charset=utf-8", m.WriteHTML(out, "Ladder")
	case "svg":
		return "image/svg+xml", m.WriteSVG(out)
	case "text":
		return "text/plain; charset=utf-8", m.WriteText(out)
	}
	return "", control.Errorf(http.StatusBadRequest, "there is no format %.20q; there are html, svg, text and pcapng", format)
}

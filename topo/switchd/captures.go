package switchd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/swordbox/handler"
)

// captures streams copies of packets to operators.
type captures struct {
	hub *tap.Hub
	log *slog.Logger
	// life is the context of all captures. stop cancels it, which ends them all; the daemon calls
	// stop when its loop ends.
	stop context.CancelFunc
	life context.Context

	mu sync.Mutex
	// running holds the function that ends a capture, by the name that its client gave the capture.
	running map[string]context.CancelFunc
}

// begin registers a running capture by its name, so that the method end finds it. The caller calls
// done when the capture has ended.
func (c *captures) begin(name string, cancel context.CancelFunc) (done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[name] != nil {
		return nil, fmt.Errorf("a capture with the name %q runs already", name)
	}
	c.running[name] = cancel
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, name)
	}, nil
}

// end ends a capture by its name. The stream still delivers all packets that were captured before.
// If the client closed the stream instead, it would lose the packets that it has not read.
func (c *captures) end(r *http.Request, _ none) (none, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cancel := c.running[r.PathValue("name")]
	if cancel == nil {
		return none{}, answer(handler.Gone(fmt.Errorf("no capture has the name %q", r.PathValue("name"))))
	}
	cancel()
	return none{}, nil
}

// serveCapture streams pcapng. The stream ends when the client disconnects or ends the capture by
// its name, when the time that the client has given by for= is over, or when the daemon ends.
func (c *captures) serveCapture(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	o := tap.Options{Links: q["link"], Only: q.Get("dir")}
	if s := q.Get("snaplen"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			refuseCapture(w, fmt.Errorf("snaplen %q is no number of bytes", s))
			return
		}
		o.Snaplen = n
	}
	o.Commented = q.Get("commented") != ""
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	if name := q.Get("name"); name != "" {
		done, err := c.begin(name, cancel)
		if err != nil {
			refuseCapture(w, err)
			return
		}
		defer done()
	}
	if s := q.Get("for"); s != "" {
		lasting, err := time.ParseDuration(s)
		if err != nil || lasting <= 0 {
			refuseCapture(w, fmt.Errorf("for=%q is no duration; write it like 10s", s))
			return
		}
		timer := time.AfterFunc(lasting, cancel)
		defer timer.Stop()
	}
	rc := http.NewResponseController(w)
	started := false
	o.Flush = func() {
		started = true
		_ = rc.Flush() // if the client has disconnected, the next write fails
	}
	w.Header().Set("Content-Type", "application/x-pcapng")
	sum, err := c.hub.Capture(ctx, w, o)
	if err != nil && !started {
		refuseCapture(w, err)
		return
	}
	c.log.Log(context.Background(), levelOf(sum.Lost == 0), "capture ended", "links", o.Links, "packets", sum.Written, "lost", sum.Lost)
}

// servePast sends the last packets if the switch keeps them (Config.Keep).
func (c *captures) servePast(w http.ResponseWriter, _ *http.Request) {
	var buf bytes.Buffer
	if _, err := c.hub.Past(&buf); err != nil {
		refuseCapture(w, handler.Gone(err))
		return
	}
	w.Header().Set("Content-Type", "application/x-pcapng")
	_, _ = w.Write(buf.Bytes()) // an error means that the client has disconnected
}

// refuseCapture answers with an error instead of a stream.
func refuseCapture(w http.ResponseWriter, err error) {
	e := &control.Error{Status: http.StatusBadRequest, Message: err.Error()}
	if errors.As(answer(err), &e) && e.Status == http.StatusInternalServerError {
		e.Status = http.StatusBadRequest
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(e) // an error means that the client has disconnected
}

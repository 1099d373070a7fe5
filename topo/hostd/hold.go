package hostd

import (
	"context"
	"net/http"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/perf"
)

// holds are the runs of perf whose clients have ended and whose connections stay open. The clients
// of other hosts may need these connections: a switch with published rules sends the requests of
// all clients on the connection of one of them.
type holds struct {
	mu    sync.Mutex                 // guards byKey
	byKey map[string][]chan struct{} // by perf.OneWord.Held; a channel is closed when its run is released
}

// wait says by send that the run is held, and returns when it is released, or with an error if ctx
// ends before.
func (h *holds) wait(ctx context.Context, key string, send func(perf.Event) error) error {
	released := make(chan struct{})
	h.mu.Lock()
	if h.byKey == nil {
		h.byKey = make(map[string][]chan struct{})
	}
	h.byKey[key] = append(h.byKey[key], released)
	h.mu.Unlock()
	if err := send(perf.Event{Held: true}); err != nil {
		h.release(key)
		return err
	}
	select {
	case <-released:
		return nil
	case <-ctx.Done():
		h.release(key)
		return perf.ErrCancelled
	}
}

// release releases the runs with a key. It returns how many they were.
func (h *holds) release(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.byKey[key]
	delete(h.byKey, key)
	for _, c := range list {
		close(c)
	}
	return len(list)
}

// ReleaseRequest releases the runs of perf that the host holds with this key (perf.OneWord.Held).
type ReleaseRequest struct {
	Held string `json:"held"`
}

func (a *application) releaseHeld(_ *http.Request, in ReleaseRequest) (none, error) {
	if a.holds.release(in.Held) == 0 {
		return none{}, control.Errorf(http.StatusNotFound, "%s holds no run %.40q", a.h.self.Name, in.Held)
	}
	return none{}, nil
}

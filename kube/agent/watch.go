package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// kubeletSocket is the name of the socket at which the kubelet takes registrations, in its folder of device plugins.
const kubeletSocket = "kubelet.sock"

// rounds returns a channel that gets a value when the agent is to look: every interval, and as soon as a kubelet that starts has
// made its socket. Until the agent has registered, that kubelet refuses Pods with devices; among them are those whose container has
// started before, which it does not always find among the containers that run. The channel is never closed. If the folder cannot be
// watched, the interval alone counts, and the error says why.
func rounds(ctx context.Context, dir string, interval time.Duration) (<-chan struct{}, error) {
	out := make(chan struct{}, 1)
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(dir)
	}
	var made <-chan fsnotify.Event // nil, and never ready, if nothing is watched
	var lost <-chan error          // events
	if err == nil {
		made, lost = w.Events, w.Errors
	}
	go func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		if w != nil {
			defer w.Close() // nothing is read any more
		}
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-made:
				if !e.Has(fsnotify.Create) || filepath.Base(e.Name) != kubeletSocket {
					continue
				}
			case <-lost:
			case <-tick.C:
			}
			select {
			case out <- struct{}{}:
			default: // it is to look already
			}
		}
	}()
	return out, err
}

package container

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Event is something that happened to a container of a rack.
type Event struct {
	Host string
	When time.Time
	// What is the engine's word: start, die, kill, pause, unpause, restart, oom, connect,
	// disconnect, …
	What string
}

// heard are the events that matter; others, like the runs of exec, are not shown.
var heard = []string{"create", "start", "die", "kill", "pause", "unpause", "restart", "oom", "destroy", "connect", "disconnect"}

// eventJSON is the part of the engine's event that matters.
type eventJSON struct {
	Type   string `json:"Type"`
	Action string `json:"Action"`
	Actor  struct {
		ID         string            `json:"ID"`
		Attributes map[string]string `json:"Attributes"`
	} `json:"Actor"`
	TimeNano int64 `json:"timeNano"`
}

// Events hears what happens to a rack's containers and links, and hands it to each, until ctx or
// the events end; it never returns nil. subscribed is called when nothing is lost any more.
func (e *Engine) Events(ctx context.Context, rack string, subscribed func(), each func(Event)) error {
	// Events of networks have no labels, so all of them are asked for and told apart by name.
	q := filters("type", "container", "type", "network")
	resp, err := e.do(ctx, http.MethodGet, "/events", q, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // it ends with ctx or the engine
	subscribed()
	dec := json.NewDecoder(resp.Body)
	for {
		var ev eventJSON
		if err := dec.Decode(&ev); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("events: %w", err)
		}
		if out, ok := ev.of(rack); ok {
			each(out)
		}
	}
}

// of is the event if it is about the rack.
func (ev *eventJSON) of(rack string) (Event, bool) {
	what, _, _ := strings.Cut(ev.Action, ":") // some have details behind a colon
	if !slices.Contains(heard, what) {
		return Event{}, false
	}
	out := Event{When: time.Unix(0, ev.TimeNano), What: what}
	a := ev.Actor.Attributes
	switch ev.Type {
	case "container":
		if a[LabelRack] != rack {
			return Event{}, false
		}
		out.Host = a[LabelHost]
		if a[LabelPart] == PartHolder {
			out.What = "holder " + what
		}
	case "network":
		host, ok := strings.CutPrefix(a["name"], linkNetName(rack, ""))
		if !ok || what != "connect" && what != "disconnect" {
			return Event{}, false
		}
		out.Host = host
	default:
		return Event{}, false
	}
	return out, true
}

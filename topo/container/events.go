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

// Event is an event of a container of a rack, or of a network that is the link of a host.
type Event struct {
	Host string // the host that has this container or link
	When time.Time
	// What is the engine's name of the event: start, die, kill, pause, unpause, restart, oom,
	// connect, disconnect, … For a container with PartHolder, "holder " stands before the name.
	What string
}

// heard lists the events that Events reports. Events drops all others, such as those of exec.
var heard = []string{"create", "start", "die", "kill", "pause", "unpause", "restart", "oom", "destroy", "connect", "disconnect"}

// eventJSON holds the fields of the engine's events that this package uses.
type eventJSON struct {
	Type   string `json:"Type"`
	Action string `json:"Action"`
	Actor  struct {
		ID         string            `json:"ID"`
		Attributes map[string]string `json:"Attributes"`
	} `json:"Actor"`
	TimeNano int64 `json:"timeNano"`
}

// Events calls each for every event of the engine about a rack's containers and links, until ctx
// ends or the stream of events ends. It never returns nil. It calls subscribed when the engine
// begins to report events.
func (e *Engine) Events(ctx context.Context, rack string, subscribed func(), each func(Event)) error {
	// Events of networks have no labels, so Events subscribes to all of them and selects them by
	// name.
	q := filters("type", "container", "type", "network")
	resp, err := e.do(ctx, http.MethodGet, "/events", q, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // the stream ends with ctx or the engine
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

// of converts the event. The bool is false if the event is not about a container or link of the
// rack.
func (ev *eventJSON) of(rack string) (Event, bool) {
	what, _, _ := strings.Cut(ev.Action, ":") // some names of events have details behind a colon
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

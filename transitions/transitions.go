// Package transitions turns the edges of a state machine into its table by state and event.
package transitions

// Edge is a transition: in state From, event On leads to state To. It is an alias of a struct type
// so that tables in other packages need no field names.
type Edge[S, E ~uint8] = struct {
	From S
	On   E
	To   S
}

// Fill fills a transition table. cell returns the place of the entry for a state and an event. If
// there is an edge for the state and the event, the entry becomes the edge's To; otherwise the
// state stays as it is. States and events are numbered from 0; the parameters states and events are
// their counts.
func Fill[S, E ~uint8](states S, events E, edges []Edge[S, E], cell func(S, E) *S) {
	for s := range states {
		for e := range events {
			*cell(s, e) = s
		}
	}
	for _, e := range edges {
		*cell(e.From, e.On) = e.To
	}
}

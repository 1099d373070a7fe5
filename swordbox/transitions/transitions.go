// Package transitions turns the edges of a state machine into its table by state and event.
package transitions

// Edge is a transition: in state From, event On leads to state To. It is an alias of a struct type,
// so that tables in other packages can be written without field names.
type Edge[S, E ~uint8] = struct {
	From S
	On   E
	To   S
}

// Fill fills a transition table: cell returns the entry of a state and an event. An event that has an
// edge in the state leads to the edge's To; one that has none leaves the state as it is. States and
// events are numbered from 0; states and events are the counts of them.
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

package pipeline

// Note explains what the switch did with a frame; see Switch.Notes.
type Note struct {
	// Out is the index of the frame in the output batch; -1 means that the note is about the
	// received frame.
	Out  int
	Text string
	// Peer is the other port of a frame that was forwarded, rewritten or released. For the received
	// frame it is the egress port; for a frame of the output batch it is the ingress port. -1 means
	// that there is none, or more than one.
	Peer int
}

// notes is what captures are told about the frames of a step, if it is on.
type notes struct {
	on   bool
	list []Note
	// text explains the frame that the switch sends now. from is the port at which that frame has
	// arrived; -1 means that the switch has made it.
	text string
	from int
}

// begin begins a step.
func (n *notes) begin() { n.list, n.from = n.list[:0], -1 }

// add adds a note about a frame: the received frame if `out` is -1, otherwise the frame at index
// `out` of the output batch.
func (n *notes) add(out int, text string) {
	if !n.on {
		return
	}
	note := Note{Out: out, Text: text, Peer: -1}
	if out >= 0 {
		note.Peer = n.from
	}
	n.list = append(n.list, note)
}

// Observe turns Notes on or off. While Notes are off, the switch spends no time on them.
func (s *Switch) Observe(on bool) { s.notes.on = on }

// Notes describes what the last call of Frame, Tick, Step or Load did besides plain forwarding:
// which packets it dropped, rewrote or emitted, and why. The result is valid until the next call.
// It is empty unless Observe is on.
func (s *Switch) Notes() []Note { return s.notes.list }

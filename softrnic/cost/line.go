package cost

import "github.com/rdmalab/rdmalab/softrnic/clock"

// Line applies the costs of one direction of a link in virtual time. It is a state machine.
type Line struct {
	link *Link
	out  server
}

func NewLine(link *Link) *Line { return &Line{link: link} }

// Send returns when the last bit of a frame arrives at the other end, if one end begins to send it at
// the time `now`, or as soon as the line is free. size is the length of the frame in bytes.
func (l *Line) Send(now clock.Time, size int) clock.Time {
	at := picoOf(now)
	if l.link.Rate > 0 {
		span := pico(int64(size+l.link.Overhead) * 8 * picoPerSecond / l.link.Rate)
		at = l.out.serve(at, span) + span
	}
	return (at + picoOf(clock.Time(l.link.Delay))).time()
}

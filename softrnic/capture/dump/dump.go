package dump

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
)

// Config says what a Dumper prints.
type Config struct {
	Filter Filter
	// JSON prints one JSON object per line instead of text.
	JSON bool
	// TimeOfDay prints UTC times of day instead of seconds since the first packet of the file. It
	// applies only to text: JSON has the full date.
	TimeOfDay bool
	// Verify, if not nil, decodes a whole frame with two decoders and returns an error if their
	// results differ, like Frame of package softrnic/capture/crosscheck. It is called for every packet
	// that was captured completely.
	Verify func(frame []byte) error
	// Each, if not nil, gets every packet that Filter selects, instead of a line on the output. The
	// record is valid until Each returns; an error ends Dump, which returns it.
	Each func(r *Record) error
}

// Stats counts packets, including those that are not printed.
type Stats struct {
	RoCE      int    // all RoCEv2 packets, of which:
	Malformed int    // could not be parsed
	BadICRC   int    // have a wrong ICRC
	Cut       int    // not captured completely, so that their ICRC is unknown
	Other     int    // not RoCEv2
	Disputed  int    // RoCEv2 or not: Config.Verify reports a difference
	Shown     int    // printed, RoCEv2 or not
	Lost      uint64 // not in the capture, which was too slow for them, as it says itself
}

// Bad returns the number of malformed packets, packets with a wrong ICRC, and packets on which the
// decoders disagree. A packet in two of these groups counts twice.
func (s *Stats) Bad() int { return s.Malformed + s.BadICRC + s.Disputed }

// String returns the numbers as a sentence.
func (s *Stats) String() string {
	text := fmt.Sprintf("%d RoCEv2 packets: %d good, %d with a wrong ICRC, %d malformed",
		s.RoCE, s.RoCE-s.Malformed-s.BadICRC-s.Cut, s.BadICRC, s.Malformed)
	if s.Cut > 0 {
		text += fmt.Sprintf(", %d captured in part", s.Cut)
	}
	if s.Disputed > 0 {
		text += fmt.Sprintf("; %d decoded differently by gopacket", s.Disputed)
	}
	if s.Lost > 0 {
		text += fmt.Sprintf("; %d more are missing in the capture, which was too slow for them", s.Lost)
	}
	return text + fmt.Sprintf("; %d other frames; %d shown", s.Other, s.Shown)
}

// ErrLinkType means that the capture was not taken on an Ethernet interface.
var ErrLinkType = errors.New("not Ethernet: capture on one interface, not on \"any\"")

// Dumper prints the packets of capture files.
type Dumper struct {
	Stats Stats

	config Config
	out    *bufio.Writer
	start  *int64 // time of the first packet; nil before the first packet, and if times of day are printed
	buf    []byte
}

// New returns a Dumper that prints to w.
func New(w io.Writer, config Config) (*Dumper, error) {
	if err := config.Filter.Validate(); err != nil {
		return nil, err
	}
	return &Dumper{config: config, out: bufio.NewWriter(w)}, nil
}

// Dump prints the packets of the capture file r; name appears in JSON only. If the file is broken,
// the error is a *pcapng.Error, and Dump has printed the packets before the broken place. Malformed
// or damaged packets are not an error, but they are counted.
func (d *Dumper) Dump(name string, r io.Reader) error {
	d.start = nil
	return errors.Join(d.dump(name, r), d.out.Flush())
}

func (d *Dumper) dump(name string, r io.Reader) error {
	rd, err := pcapng.NewReader(r)
	if err != nil {
		return err
	}
	defer func() { d.Stats.Lost += rd.Lost() }()
	var rec Record
	for {
		if rd.Buffered() == 0 { // the next read may wait for a live capture
			if err := d.out.Flush(); err != nil {
				return err
			}
		}
		if err := rd.Next(&rec.Packet); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if rec.LinkType != pcapng.Ethernet {
			return &pcapng.Error{Offset: rec.Offset, Err: fmt.Errorf("link type %d: %w", rec.LinkType, ErrLinkType)}
		}
		rec.decode()
		if d.config.Verify != nil && len(rec.Data) >= rec.OrigLen {
			rec.Dispute = d.config.Verify(rec.Data)
		}
		d.count(&rec)
		if err := d.print(&rec, name); err != nil {
			return err
		}
	}
}

func (d *Dumper) count(r *Record) {
	s := &d.Stats
	if r.Dispute != nil {
		s.Disputed++
	}
	if r.Verdict == Other {
		s.Other++
		return
	}
	s.RoCE++
	switch r.Verdict {
	case Malformed:
		s.Malformed++
	case BadICRC:
		s.BadICRC++
	case Cut:
		s.Cut++
	case OK, Other:
	}
}

func (d *Dumper) print(r *Record, name string) (err error) {
	if d.start == nil && !d.config.TimeOfDay {
		first := r.Time
		d.start = &first
	}
	if !d.config.Filter.match(r) {
		return nil
	}
	d.Stats.Shown++
	if d.config.Each != nil {
		return d.config.Each(r)
	}
	if d.config.JSON {
		d.buf, err = r.appendJSON(d.buf[:0], name)
	} else {
		d.buf = r.appendText(d.buf[:0], d.start)
	}
	if err != nil {
		return err
	}
	_, err = d.out.Write(d.buf)
	return err
}

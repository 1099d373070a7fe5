package text

import "bytes"

// Limits of a Decoder, in bytes.
const (
	// MaxLine is the length of the longest command line, with its end. A longer line of get or gets
	// becomes several requests (see Request.More).
	MaxLine = 16 << 10
	// readLen is the least length of the space that Room returns after it has allocated memory. At
	// other times the space is at least half as long.
	readLen = 4 << 10
	// binaryMagic is the first byte of a request of the binary protocol.
	binaryMagic = 0x80
)

// state is what the next byte of a client belongs to.
type state uint8

const (
	inLine state = iota // a command line
	inData              // the data of pending
	inSkip              // data of a refused command, of which `left` bytes are still to be skipped
	inRest              // bytes that are skipped up to the end of the line
	ended               // nothing: the connection has ended
)

// Decoder cuts the bytes of one connection into requests. The caller reads into Room, says with
// Took how many bytes it has read, and calls Next until there is no more whole request. NewDecoder
// makes one.
type Decoder struct {
	maxData int
	buf     []byte // the bytes from index at on are not decoded yet
	at      int
	state   state
	// going says what the next bytes in state inLine are: "get " or "gets " means the rest of a
	// line that began with this command, "" means a new line.
	going   string
	left    int
	line    []byte  // the command line of pending, which has its keys
	size    int     // length of the data of pending
	pending Request // the request that is being decoded, or that Next has returned last
}

// NewDecoder makes a Decoder that refuses more than maxData bytes of data with TooLarge.
func NewDecoder(maxData int) *Decoder { return &Decoder{maxData: maxData} }

// Room returns space for the next bytes of the connection.
func (d *Decoder) Room() []byte {
	if d.at > 0 {
		d.buf, d.at = d.buf[:copy(d.buf, d.buf[d.at:])], 0
	}
	want := readLen
	if d.state == inData {
		want = max(want, d.size+len(lineEnd)-len(d.buf))
	}
	if cap(d.buf)-len(d.buf) < want/2 { // less than half, so that a short read does not make the next call copy again
		d.buf = append(make([]byte, 0, len(d.buf)+want), d.buf...)
	}
	return d.buf[len(d.buf):cap(d.buf)]
}

// Took says that the caller has put n bytes of the connection at the beginning of Room.
func (d *Decoder) Took(n int) { d.buf = d.buf[:len(d.buf)+n] }

// Next returns the next request; ok is false if it is not whole yet.
func (d *Decoder) Next() (r *Request, ok bool) {
	for {
		b := d.buf[d.at:]
		switch d.state {
		case inLine:
			if len(b) > 0 && b[0] == binaryMagic && d.going == "" {
				return d.end(binary), true
			}
			n := bytes.IndexByte(b[:min(len(b), MaxLine)], '\n')
			if n < 0 && len(b) >= MaxLine {
				return d.part(b[:MaxLine]), true
			}
			if n < 0 {
				return nil, false
			}
			d.at += n + 1
			if d.command(bytes.TrimSuffix(b[:n], []byte("\r"))) {
				return &d.pending, true
			}
		case inData:
			if whole := d.data(b); whole {
				return &d.pending, true
			}
			return nil, false
		case inSkip:
			n := min(d.left, len(b))
			d.at, d.left = d.at+n, d.left-n
			if d.left > 0 {
				return nil, false
			}
			d.state = inRest
		case inRest:
			n := bytes.IndexByte(b, '\n')
			if n < 0 {
				d.at = len(d.buf)
				return nil, false
			}
			d.at, d.state = d.at+n+1, inLine
		case ended:
			return nil, false
		}
	}
}

// end returns the last request of a connection: the bytes after it cannot be decoded.
func (d *Decoder) end(refusal string) *Request {
	d.state, d.pending = ended, Request{Refusal: refusal, Last: true}
	return &d.pending
}

// part handles the beginning b of a line that is too long to wait for its end, or of the rest of
// such a line. If the command is get or gets, part returns a request with the keys that are whole.
func (d *Decoder) part(b []byte) *Request {
	for _, begin := range []string{"get ", "gets "} {
		if d.going == "" && bytes.HasPrefix(b, []byte(begin)) {
			d.going = begin
			d.at += len(begin)
			b = b[len(begin):]
		}
	}
	n := bytes.LastIndexByte(b, ' ') + 1
	if d.going == "" || n == 0 {
		return d.end(longLine)
	}
	d.at += n
	d.keys(b[:n])
	if d.pending.More = d.pending.Refusal == ""; !d.pending.More {
		d.state, d.going = inRest, ""
	}
	return &d.pending
}

// keys sets pending to a get or gets request for the keys in a part of a line. The part may have no
// key.
func (d *Decoder) keys(part []byte) {
	d.line = append(append(d.line[:0], d.going...), part...)
	d.pending = Request{}
	d.pending.parse(d.line)
	if d.pending.Refusal == Unknown {
		d.pending.Refusal = ""
	}
}

// command handles a command line. whole is true if the request is complete, because it is refused
// or has no data.
func (d *Decoder) command(line []byte) (whole bool) {
	if d.going != "" {
		d.keys(line)
		d.going = ""
		return true
	}
	d.line = append(d.line[:0], line...)
	d.pending = Request{}
	d.size = d.pending.parse(d.line)
	if d.size > d.maxData && d.pending.Refusal == "" {
		d.pending.Refusal = TooLarge
	}
	switch {
	case d.pending.Verb == Quit && d.pending.Refusal == "":
		d.state, d.pending.Last = ended, true
	case d.size < 0:
	case d.pending.Refusal != "":
		d.state, d.left = inSkip, d.size
	default:
		d.state = inData
		return false
	}
	return true
}

// data takes the data of the request d.pending from b. whole is false if b does not yet have all of
// them and the end of line behind them.
func (d *Decoder) data(b []byte) (whole bool) {
	if len(b) <= d.size {
		return false
	}
	end := b[d.size:]
	switch {
	case end[0] == '\r' && len(end) == 1:
		return false
	case end[0] == '\n':
		end = end[:1]
	case end[0] == '\r' && end[1] == '\n':
		end = end[:2]
	default:
		d.at, d.state = d.at+d.size, inRest
		d.pending.Refusal = badData
		return true
	}
	d.at, d.state = d.at+d.size+len(end), inLine
	d.pending.Data = b[:d.size:d.size]
	return true
}

package netcache

import (
	"bytes"
	"encoding/binary"
	"strconv"
)

// The head of a datagram of memcached's protocol over UDP (doc/protocol.txt of memcached): number of the
// request, number of the datagram, how many datagrams the message has, and a reserved field, of 2 bytes
// each. A client chooses the number of a request, and the answer has it again.
const headLen = 8

// maxKey is the length of the longest key of memcached, in bytes.
const maxKey = 250

// Verb says what a request does.
type Verb uint8

const (
	// Get is a get of one key. Gets is a gets of one key, which the switch never answers.
	Get Verb = iota
	Gets
	// Write is a request that may change the value of one key.
	Write
	// Many is any other request: it may be about any key.
	Many
)

// request is a request in one datagram.
type request struct {
	id   uint16
	kind Verb
	key  []byte // of Get, Gets and Write
}

// parseRequest reads the payload of a datagram to the server. ok is false if it has no head.
func parseRequest(b []byte) (r request, ok bool) {
	if len(b) < headLen {
		return r, false
	}
	r = request{id: binary.BigEndian.Uint16(b), kind: Many}
	if binary.BigEndian.Uint32(b[2:]) != 1 {
		return r, true // the server refuses requests of several datagrams
	}
	line, rest, found := bytes.Cut(b[headLen:], []byte("\n"))
	if !found {
		return r, true
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	if bytes.IndexByte(line, 0) >= 0 { // the server cuts the line there
		return r, true
	}
	verb, args := word(line)
	key, more := word(args)
	if len(key) == 0 || len(key) > maxKey {
		return r, true
	}
	switch string(verb) {
	case "get", "gets":
		if another, _ := word(more); len(another) == 0 && len(rest) == 0 {
			r.kind, r.key = Get, key
			if len(verb) == 4 {
				r.kind = Gets
			}
		}
	case "set", "add", "replace", "append", "prepend", "cas":
		if n, ok := size(more, string(verb) == "cas"); ok && wholeData(rest, n) {
			r.kind, r.key = Write, key
		}
	case "delete", "incr", "decr", "touch":
		if len(rest) == 0 {
			r.kind, r.key = Write, key
		}
	}
	return r, true
}

// size returns the length of the data that follow a command line with these arguments behind the key: flags,
// exptime, length, of cas a unique number, and perhaps noreply. ok is false if there is anything else: the server
// refuses such a line, and may take the data for commands.
func size(args []byte, cas bool) (n int, ok bool) {
	var w [6][]byte
	count := 0
	for arg, rest := word(args); len(arg) > 0; arg, rest = word(rest) {
		if count == len(w) {
			return 0, false
		}
		w[count] = arg
		count++
	}
	numbers := 3
	if cas {
		numbers++
	}
	if count > numbers && string(w[count-1]) == "noreply" {
		count--
	}
	if count != numbers || !decimal(w[0], 32) || !decimal(bytes.TrimPrefix(w[1], []byte("-")), 31) || cas && !decimal(w[3], 64) {
		return 0, false
	}
	return number(w[2])
}

// decimal reports whether text is a decimal number of so many bits.
func decimal(text []byte, bits int) bool {
	if len(text) == 0 || text[0] == '+' {
		return false
	}
	_, err := strconv.ParseUint(string(text), 10, bits)
	return err == nil
}

// wholeData reports whether b is n bytes and the end of a line, and nothing else.
func wholeData(b []byte, n int) bool {
	if len(b) < n {
		return false
	}
	end := string(b[n:])
	return end == "\r\n" || end == "\n"
}

// answer is an answer in one datagram.
type answer struct {
	id uint16
	// whole is true if the answer is one item with a value, and nothing else.
	whole bool
	key   []byte
	body  []byte // the answer behind the head
	// unique is true if the answer has the item's unique number, as those to gets have.
	unique bool
	digest uint64 // of key, flags and data
}

// parseAnswer reads the payload of a datagram from the server. ok is false if it has no head.
func parseAnswer(b []byte) (a answer, ok bool) {
	if len(b) < headLen {
		return a, false
	}
	a.id = binary.BigEndian.Uint16(b)
	if binary.BigEndian.Uint32(b[2:]) == 1 {
		a.parse(b[headLen:])
	}
	return a, true
}

var (
	beginItem = []byte("VALUE ")
	lineEnd   = []byte("\r\n")
	endItems  = []byte("\r\nEND\r\n")
)

// parse reads an answer behind its head.
func (a *answer) parse(b []byte) {
	a.body = b
	line, rest, found := bytes.Cut(b, lineEnd)
	if !found || !bytes.HasPrefix(line, beginItem) {
		return
	}
	key, line := word(line[len(beginItem):])
	flags, line := word(line)
	text, line := word(line)
	unique, line := word(line)
	n, ok := number(text)
	if !ok || len(key) == 0 || len(key) > maxKey || len(flags) == 0 || len(line) > 0 || len(rest) != n+len(endItems) || !bytes.Equal(rest[n:], endItems) {
		return
	}
	a.whole, a.key, a.unique = true, key, len(unique) > 0
	a.digest = hashOf(hashOf(hashOf(begin, key), flags), rest[:n])
}

// word returns the first word of a line, and what follows it.
func word(line []byte) (w, rest []byte) {
	for len(line) > 0 && line[0] == ' ' {
		line = line[1:]
	}
	for i, c := range line {
		if c == ' ' {
			return line[:i], line[i+1:]
		}
	}
	return line, nil
}

// number reads a decimal number of at most 7 digits.
func number(text []byte) (n int, ok bool) {
	if len(text) == 0 || len(text) > 7 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// begin is the hash of nothing.
const begin = 0x9e3779b97f4a7c15

// hashOf continues hash h with bytes and their number. It is not made against people who look for two
// values with the same hash.
func hashOf(h uint64, b []byte) uint64 {
	mix := func(x uint64) {
		h = (h ^ x) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	mix(uint64(len(b)))
	for len(b) >= 8 {
		mix(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	last := uint64(0)
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	mix(last)
	h ^= h >> 29
	return h * 0x94d049bb133111eb
}

package text

import (
	"bytes"
	"slices"
	"strconv"
)

// MaxKey is the length of the longest key, in bytes.
const MaxKey = 250

// maxBytes is the greatest number of bytes that a command may announce.
const maxBytes = 1<<31 - 3

var noreply = []byte("noreply")

// parse parses a command line without its end. size is how many bytes of data follow; -1 means that
// none follow, or that the line does not say how many.
func (r *Request) parse(line []byte) (size int) {
	var fields [][]byte
	for f := range bytes.SplitSeq(line, []byte(" ")) {
		if len(f) > 0 {
			fields = append(fields, f)
		}
	}
	size = -1
	if len(fields) == 0 {
		r.Refusal = Unknown
		return size
	}
	c, ok := commands[string(fields[0])]
	if !ok {
		r.Refusal = Unknown
		return size
	}
	r.Verb, fields = c.verb, fields[1:]
	if n := len(fields); c.form.silent(n) && bytes.Equal(fields[n-1], noreply) {
		r.NoReply, fields = true, fields[:n-1]
	}
	switch c.form {
	case formData:
		size = r.data(fields)
	case formKeys:
		r.keys(fields, len(fields))
	case formDelete:
		r.keys(fields, min(1, len(fields)))
		if r.Refusal == "" && (len(fields) > 2 || len(fields) == 2 && string(fields[1]) != "0") {
			r.Refusal = badLine + ".  Usage: delete <key> [noreply]"
		}
	case formCount:
		r.count(fields)
	case formNumber, formLevel:
		r.number(fields)
		if c.form == formLevel && len(fields) == 0 {
			r.Refusal = Unknown
		}
	case formNone:
		if len(fields) > 0 {
			r.Refusal = Unknown
		}
	case formAny:
		r.Args = fields
	}
	return size
}

// silent reports whether the last of n fields may be the word noreply. A first field that must be a
// key is the key even if it reads noreply.
func (f form) silent(n int) bool {
	switch f {
	case formData, formDelete, formCount:
		return n > 1
	case formNumber, formLevel:
		return n > 0
	default:
		return false
	}
}

// keys takes the first n fields as the keys of the request.
func (r *Request) keys(fields [][]byte, n int) {
	if n == 0 {
		r.Refusal = Unknown
		return
	}
	r.Keys = fields[:n]
	if slices.ContainsFunc(r.Keys, func(k []byte) bool { return len(k) > MaxKey || bytes.ContainsAny(k, "\x00\r") }) {
		r.Refusal = badLine
	}
}

// data parses the fields of a command with data. size is how many bytes of data follow; -1 means
// that this is not known. If the line has too few fields, it is not known, because any of the
// fields may be the missing one.
func (r *Request) data(fields [][]byte) (size int) {
	want := 4
	if r.Verb == Cas {
		want++
	}
	if len(fields) < want {
		r.Refusal = Unknown
		return -1
	}
	n, err := strconv.ParseUint(string(fields[3]), 10, 32)
	if err != nil || n > maxBytes {
		r.Refusal = badLine
		return -1
	}
	if len(fields) > want {
		r.Refusal = Unknown
		return int(n)
	}
	r.keys(fields, 1)
	flags, ferr := strconv.ParseUint(string(fields[1]), 10, 32)
	var xerr, uerr error
	r.Flags = uint32(flags)
	r.Exptime, xerr = strconv.ParseInt(string(fields[2]), 10, 64)
	if r.Verb == Cas {
		r.Unique, uerr = strconv.ParseUint(string(fields[4]), 10, 64)
	}
	if ferr != nil || xerr != nil || uerr != nil {
		r.Refusal = badLine
	}
	return int(n)
}

func (r *Request) count(fields [][]byte) {
	if len(fields) != 2 {
		r.Refusal = Unknown
		return
	}
	var err error
	if r.Delta, err = strconv.ParseUint(string(fields[1]), 10, 64); err != nil {
		r.Refusal = "CLIENT_ERROR invalid numeric delta argument"
		return
	}
	r.keys(fields, 1)
}

func (r *Request) number(fields [][]byte) {
	var err error
	switch len(fields) {
	case 0:
	case 1:
		r.Exptime, err = strconv.ParseInt(string(fields[0]), 10, 64)
	default:
		r.Refusal = Unknown
	}
	if err != nil {
		r.Refusal = badLine
	}
}

package text

import "strconv"

// AppendRequest appends a request as a client sends it, with its data. The request has no Refusal.
func AppendRequest(b []byte, r *Request) []byte {
	var c form
	for word, k := range commands {
		if k.verb == r.Verb {
			b, c = append(b, word...), k.form
		}
	}
	field := func(f []byte) { b = append(append(b, ' '), f...) }
	number := func(n uint64) { b = strconv.AppendUint(append(b, ' '), n, 10) }
	for _, k := range r.Keys {
		field(k)
	}
	for _, a := range r.Args {
		field(a)
	}
	switch c { //nolint:exhaustive // the other forms have no more fields
	case formData:
		number(uint64(r.Flags))
		b = strconv.AppendInt(append(b, ' '), r.Exptime, 10)
		number(uint64(len(r.Data)))
		if r.Verb == Cas {
			number(r.Unique)
		}
	case formCount:
		number(r.Delta)
	case formNumber, formLevel:
		b = strconv.AppendInt(append(b, ' '), r.Exptime, 10)
	}
	if r.NoReply {
		field(noreply)
	}
	b = append(b, lineEnd...)
	if c == formData {
		b = append(append(b, r.Data...), lineEnd...)
	}
	return b
}

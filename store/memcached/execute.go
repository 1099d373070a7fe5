package memcached

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/memcached/text"
)

const (
	// version is the answer to the command version: the release of memcached whose text protocol
	// this package follows.
	version  = "1.4.0"
	noExpiry = "SERVER_ERROR items do not expire here: use an exptime of 0"
	noDelay  = "SERVER_ERROR flush_all takes no delay here"
)

// executor is the session of a connection of a Server in front of a table.
type executor struct {
	t     Table
	read  func(key uint64, dst []byte) (value []byte, version uint64, err error) // Table.Read
	count *counts
	value []byte // the item as it was read
	next  []byte // the item as it will be written
	out   []byte
	// failed is true if an error has ended the answer to a get whose line goes on in further
	// requests. These requests are skipped.
	failed bool
}

func (x *executor) execute(r *text.Request, w io.Writer) error {
	if x.failed {
		x.failed = r.More
		return nil
	}
	x.out = x.out[:0]
	switch {
	case r.Refusal != "":
		x.line(r.Refusal)
	case r.Verb == text.Get, r.Verb == text.Gets:
		return x.get(r, w)
	case r.Verb == text.Delete:
		x.line(x.delete(r.Keys[0]))
	case r.Verb == text.Incr, r.Verb == text.Decr:
		x.add(r)
	case r.Verb == text.FlushAll:
		x.line(x.flush(r))
	case r.Verb == text.Stats:
		x.stats(r)
	case r.Verb == text.Version:
		x.line("VERSION " + version)
	case r.Verb == text.Verbosity:
		x.line(text.OK)
	case r.Verb == text.Quit:
	default:
		x.line(x.store(r))
	}
	if r.NoReply {
		return nil
	}
	_, err := w.Write(x.out)
	return err
}

func (*executor) abort() {} // a table does not wait

func (x *executor) close() error { return nil }

func (x *executor) line(s string) { x.out = text.AppendLine(x.out, s) }

// failed returns the answer for an error of the table.
func failed(err error) string {
	switch {
	case errors.Is(err, kv.ErrTooLarge):
		return text.TooLarge
	case errors.Is(err, kv.ErrFull):
		return text.NoRoom
	}
	return "SERVER_ERROR " + strings.Map(func(c rune) rune {
		if c < ' ' {
			return ' '
		}
		return c
	}, err.Error())
}

func (x *executor) get(r *text.Request, w io.Writer) error {
	for _, key := range r.Keys {
		x.count.gets.Add(1)
		value, version, err := x.read(Number(key), x.value)
		x.value = value[:0]
		found, flags, data, ok := parseItem(value)
		switch {
		case errors.Is(err, kv.ErrNotFound), err == nil && (!ok || !bytes.Equal(found, key)):
			continue
		case err != nil:
			x.failed = r.More
			_, err := w.Write(text.AppendLine(x.out[:0], failed(err)))
			return err
		case r.Verb == text.Gets:
			x.out = text.AppendUniqueValue(x.out[:0], key, flags, data, version)
		default:
			x.out = text.AppendValue(x.out[:0], key, flags, data)
		}
		x.count.hits.Add(1)
		if _, err := w.Write(x.out); err != nil {
			return err
		}
	}
	if r.More {
		return nil
	}
	_, err := w.Write(text.AppendLine(x.out[:0], text.End))
	return err
}

// update changes the item with a key. It calls change with the parts of the item; found is false if
// there is no such item. If change returns Store, the item gets the flags and data that change
// returns. The table may have another value under the key's number, because another key has the
// same hash. update never changes that value, and fails with kv.ErrFull unless change returns Keep.
func (x *executor) update(key []byte, change func(found bool, flags uint32, data []byte, version uint64) (uint32, []byte, Change)) error {
	var other error
	err := x.t.Update(Number(key), func(value []byte, version uint64) ([]byte, Change) {
		k, flags, data, ok := parseItem(value)
		found := ok && bytes.Equal(k, key)
		flags, data, do := change(found, flags, data, version)
		if value != nil && !found && do != Keep {
			other = fmt.Errorf("%w: another key has the hash of this one", kv.ErrFull)
			return nil, Keep
		}
		if do == Store {
			x.next = appendItem(x.next[:0], key, flags, data)
		}
		return x.next, do
	})
	return errors.Join(err, other)
}

// store executes the commands with data: set, add, replace, append, prepend and cas.
func (x *executor) store(r *text.Request) string {
	x.count.sets.Add(1)
	answer := text.Stored
	err := x.update(r.Keys[0], func(found bool, flags uint32, data []byte, version uint64) (uint32, []byte, Change) {
		switch v := r.Verb; {
		case v == text.Cas && !found:
			answer = text.NotFound
		case v == text.Cas && version != r.Unique:
			answer = text.Exists
		case v == text.Add && found, !found && (v == text.Replace || v == text.Append || v == text.Prepend):
			answer = text.NotStored
		case v == text.Append:
			return flags, bytes.Join([][]byte{data, r.Data}, nil), Store
		case v == text.Prepend:
			return flags, bytes.Join([][]byte{r.Data, data}, nil), Store
		case expired(r.Exptime, time.Now()):
			if found {
				return 0, nil, Remove
			}
		case r.Exptime != 0:
			answer = noExpiry
		default:
			return r.Flags, r.Data, Store
		}
		return 0, nil, Keep
	})
	if err != nil {
		return failed(err)
	}
	return answer
}

// relative is the longest exptime that counts from now, in seconds. A longer one is a Unix time.
const relative = 30 * 24 * 60 * 60

// expired reports whether an item with an exptime has expired when it is stored.
func expired(exptime int64, now time.Time) bool {
	return exptime < 0 || exptime > relative && exptime <= now.Unix()
}

func (x *executor) delete(key []byte) string {
	answer := text.Deleted
	err := x.update(key, func(found bool, _ uint32, _ []byte, _ uint64) (uint32, []byte, Change) {
		if !found {
			answer = text.NotFound
			return 0, nil, Keep
		}
		return 0, nil, Remove
	})
	if err != nil {
		return failed(err)
	}
	return answer
}

// add executes incr and decr on numbers of 64 bits. incr wraps around; decr ends at 0.
func (x *executor) add(r *text.Request) {
	answer, sum := "", uint64(0)
	err := x.update(r.Keys[0], func(found bool, flags uint32, data []byte, _ uint64) (uint32, []byte, Change) {
		if !found {
			answer = text.NotFound
			return 0, nil, Keep
		}
		var err error
		if sum, err = strconv.ParseUint(string(data), 10, 64); err != nil {
			answer = text.NotNumeric
			return 0, nil, Keep
		}
		if r.Verb == text.Incr {
			sum += r.Delta
		} else {
			sum -= min(sum, r.Delta)
		}
		return flags, strconv.AppendUint(nil, sum, 10), Store
	})
	switch {
	case err != nil:
		x.line(failed(err))
	case answer != "":
		x.line(answer)
	default:
		x.out = text.AppendNumber(x.out, sum)
	}
}

// flush deletes all items, and no other values.
func (x *executor) flush(r *text.Request) string {
	if r.Exptime != 0 {
		return noDelay
	}
	x.count.flushes.Add(1)
	err := x.t.Sweep(func(key uint64, value []byte) bool {
		k, _, _, ok := parseItem(value)
		return ok && Number(k) == key
	})
	if err != nil {
		return failed(err)
	}
	return text.OK
}

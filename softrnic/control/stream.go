package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// line is one line of a JSON stream: an item, or the end. A stream without an end was cut off.
type line[T any] struct {
	Item  *T     `json:"item,omitempty"`
	Error string `json:"error,omitempty"`
	Done  bool   `json:"done,omitempty"`
}

// ErrCutOff is the error of an answer that ends too early, for example of a stream without an end
// line: the daemon has died or is ending.
var ErrCutOff = errors.New("the daemon stopped in the middle of its answer")

// HandleStream is Handle for work that takes long and reports its progress. Each call of send sends
// one item to the client at once. If the client has closed the connection, send fails and f should
// return. If f returns an error, Items returns it in the client, even if f has sent items before.
func HandleStream[In, Item any](m *Mux, pattern string, f func(r *http.Request, in In, send func(Item) error) error) {
	m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		in, err := decode[In](w, r)
		if err != nil {
			WriteError(w, err)
			return
		}
		flush := http.NewResponseController(w)
		begun := false
		write := func(l line[Item]) error {
			if !begun {
				begun = true
				w.Header().Set("Content-Type", "application/x-ndjson")
			}
			if err := json.NewEncoder(w).Encode(l); err != nil {
				return err
			}
			return flush.Flush()
		}
		err = f(r, in, func(item Item) error {
			if err := r.Context().Err(); err != nil {
				return err
			}
			return write(line[Item]{Item: &item})
		})
		switch {
		case err != nil && !begun:
			WriteError(w, err)
		case err != nil:
			_ = write(line[Item]{Error: err.Error()}) // fails if the client has gone
		default:
			_ = write(line[Item]{Done: true}) // fails if the client has gone
		}
	})
}

// Items calls a daemon's stream, and calls the function `each` for every item, in order. It returns
// nil at the end of the stream, or the first error: of the daemon, of the connection, or of a call
// of `each`.
func Items[T any](ctx context.Context, c *Client, method, path string, in any, each func(T) error) error {
	body, err := c.Stream(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer body.Close()
	dec := json.NewDecoder(body)
	for {
		var l line[T]
		if err := dec.Decode(&l); err != nil {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				return ErrCutOff
			}
			return fmt.Errorf("%w: %w", ErrCutOff, err)
		}
		switch {
		case l.Done:
			return nil
		case l.Error != "":
			return &Error{Status: http.StatusOK, Message: l.Error}
		case l.Item != nil:
			if err := each(*l.Item); err != nil {
				return err
			}
		}
	}
}

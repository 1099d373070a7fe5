package meta

import (
	"iter"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// held is a node that was given to a client.
type held struct {
	client  uint32
	version layout.Version
	// given is the server's clock (reports.go) when the client got the node. The client has heard a
	// clock of at least this before each append of the node.
	given uint64
	// entry is the key whose chain the node is in, if the client has reported that it linked the
	// node; otherwise nil.
	entry *entry
	// void is true if the node's memory was lost while a client could still append the node. A
	// chain that leads to the node is lost from there on.
	void bool
}

// heldNodes has the nodes that clients hold, by handle. Handles are numbers without large gaps, and
// every append looks into it several times, so it is a table of pages. A page without nodes takes no
// memory. The zero value is empty.
type heldNodes struct {
	pages []*heldPage // nil: no node of the page is held
	n     int
	spare *heldPage // an empty page
}

// pageLen is the number of nodes of a page.
const pageLen = 256

type heldPage struct {
	list [pageLen]held
	is   [pageLen]bool // true if a client holds the node
	n    int
}

// at returns what is known of a node; ok is false if no client holds it.
func (t *heldNodes) at(h layout.Handle) (n held, ok bool) {
	if p := t.page(h); p != nil {
		return p.list[h%pageLen], p.is[h%pageLen]
	}
	return held{}, false
}

// page returns the page of a node; nil if no node there is held.
func (t *heldNodes) page(h layout.Handle) *heldPage {
	if i := int(h / pageLen); i < len(t.pages) {
		return t.pages[i]
	}
	return nil
}

// of returns what is known of a node; the zero value if no client holds it.
func (t *heldNodes) of(h layout.Handle) held {
	n, _ := t.at(h)
	return n
}

func (t *heldNodes) put(h layout.Handle, n held) {
	i := int(h / pageLen)
	if i >= len(t.pages) {
		t.pages = append(t.pages, make([]*heldPage, i+1-len(t.pages))...)
	}
	if t.pages[i] == nil {
		if t.pages[i], t.spare = t.spare, nil; t.pages[i] == nil {
			t.pages[i] = new(heldPage)
		}
	}
	p := t.pages[i]
	if !p.is[h%pageLen] {
		t.n, p.n = t.n+1, p.n+1
	}
	p.list[h%pageLen], p.is[h%pageLen] = n, true
}

func (t *heldNodes) drop(h layout.Handle) {
	p := t.page(h)
	if p == nil || !p.is[h%pageLen] {
		return
	}
	p.list[h%pageLen], p.is[h%pageLen] = held{}, false
	t.n--
	if p.n--; p.n == 0 {
		t.pages[h/pageLen], t.spare = nil, p
	}
}

func (t *heldNodes) len() int { return t.n }

// all goes through the nodes in the order of their handles. The caller may change and drop the node
// at hand.
func (t *heldNodes) all() iter.Seq2[layout.Handle, held] {
	return func(yield func(layout.Handle, held) bool) {
		for i, p := range t.pages {
			for k := range pageLen {
				if p != nil && p.is[k] && !yield(layout.Handle(i*pageLen+k), p.list[k]) {
					return
				}
			}
		}
	}
}

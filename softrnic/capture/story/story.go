// Package story tells from a capture, in sentences with the numbers of packets, why transfers of reliable
// connections healed or failed: what was lost, who noticed it and how, what was sent again, and how it
// ended. A transfer is a message, which is one work request. Transfers without trouble have no story.
//
// The reason of a refusal is not on the wire: a story says what the NAK means, and what the capture has of
// the R_Key. The package has no clock and opens no file.
package story

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/capture/ladder"
)

// Outcome is how a transfer ended.
type Outcome string

// Outcomes. Open is that of a transfer without an answer that ends it in the capture.
const (
	Healed Outcome = "healed"
	Failed Outcome = "failed"
	Open   Outcome = "open"
)

// MaxStories is how many stories Tell tells.
const MaxStories = 1000

// Story is that of one transfer.
type Story struct {
	From    string  `json:"from"` // host or address of the requester
	To      string  `json:"to"`
	QPN     uint32  `json:"qpn"`    // queue pair of the responder
	Number  int     `json:"number"` // of the transfer in its flow, from 1
	Op      string  `json:"op"`
	Packet  int     `json:"packet"` // number of its first packet
	Outcome Outcome `json:"outcome"`
	// Text names the transfer, Because are the sentences.
	Text    string   `json:"text"`
	Because []string `json:"because"`
}

// Told is what Tell has found.
type Told struct {
	Packets   int     `json:"packets"`
	Flows     int     `json:"flows"`
	Transfers int     `json:"transfers"` // of reliable connections
	Stories   []Story `json:"stories"`   // in the order of their first packets, at most MaxStories
	// Healed, Failed and Open count all transfers with a story, also those behind MaxStories.
	Healed int `json:"healed"`
	Failed int `json:"failed"`
	Open   int `json:"open"`
	// Left is how many packets were not looked at, because there were more than flows.MaxPackets.
	Left int `json:"left,omitempty"`
}

// Tell tells the stories of a capture. It calls b.Sort, so b must not be sorted yet.
func Tell(b *flows.Book) Told {
	b.Sort()
	t := teller{book: b, again: ladder.Resends(b), hosts: hostsOf(b), at: make(map[int]int, len(b.Packets))}
	for i := range b.Packets {
		t.at[b.Packets[i].Number] = i
	}
	told := Told{Packets: len(b.Packets), Flows: len(b.Flows), Left: b.Left, Stories: []Story{}}
	t.keys = keysOf(b)
	for _, f := range b.Flows {
		l := t.transfers(f)
		told.Transfers += len(l.list)
		for i, m := range l.list {
			switch m.outcome() {
			case Healed:
				told.Healed++
			case Failed:
				told.Failed++
			case Open:
				told.Open++
			default:
				continue
			}
			told.Stories = append(told.Stories, t.story(&l, i))
		}
	}
	slices.SortStableFunc(told.Stories, func(a, b Story) int { return a.Packet - b.Packet })
	if len(told.Stories) > MaxStories {
		told.Stories = told.Stories[:MaxStories]
	}
	return told
}

// teller has what stories need of the whole capture.
type teller struct {
	book  *flows.Book
	again []ladder.Resend // by place in book.Packets
	hosts map[string]string
	at    map[int]int // the place of a packet by its number
	keys  map[uint32]*keyUse
}

// hostsOf names addresses by the hosts on whose links they send.
func hostsOf(b *flows.Book) map[string]string {
	hosts := map[string]string{}
	for i := range b.Packets {
		p := &b.Packets[i]
		if host, d := flows.Side(p.Link); d == flows.Up {
			if addr := p.Src.String(); hosts[addr] == "" {
				hosts[addr] = dump.OneLine(host)
			}
		}
	}
	return hosts
}

func (t *teller) host(addr string) string {
	if h := t.hosts[addr]; h != "" {
		return h
	}
	return addr
}

// packet returns a packet by its number; nil if the capture does not have it.
func (t *teller) packet(number int) *flows.Packet {
	if i, ok := t.at[number]; ok && number > 0 {
		return &t.book.Packets[i]
	}
	return nil
}

// round returns a time in nanoseconds with three digits.
func round(ns int64) time.Duration {
	d, unit := time.Duration(ns), time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// plural returns a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "one " + noun
	}
	if noun == "retry" {
		noun = "retrie"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

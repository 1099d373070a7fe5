package experiment

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/softrnic/transport"
)

// ackCoalescing measures what a NIC without ACK coalescing, which SwordBox's authors wish for (section
// 6.1), saves and costs a switch that moves the requests of many clients to one connection.
var ackCoalescing = Experiment{
	Name:   "ack-coalescing",
	Short:  "what a NIC saves and costs that answers each request with an ACK of its own, behind a switch with published rules",
	Figure: "SwordBox §6.1 (request coalescing): their wish for NICs without it, which they do not measure",
	Sim:    "1 min", Cost: "connectx5-dpdk",
	New: func() Body { return &ackBody{clients: []int{8, 64, 256}, acks: []int{1, 4, 16}} },
}

type ackBody struct{ clients, acks []int }

func (b *ackBody) Flags(fs *pflag.FlagSet) {
	clientsFlag(fs, &b.clients)
	fs.IntSliceVar(&b.acks, "acks", b.acks, "requests that one ACK of the server's NIC answers at most, 1 to 64, separated by commas (key acks of rack files)")
}

func (b *ackBody) Check(at Place) error {
	if at.Quick {
		b.clients = few(b.clients, true)
	}
	for _, n := range b.acks {
		if n < 1 || n > transport.MaxAcks {
			return fmt.Errorf("--acks %d: want 1 to %d", n, transport.MaxAcks)
		}
	}
	if len(b.acks) == 0 {
		return errors.New("--acks: want at least one number")
	}
	return checkClients(b.clients, publishedClients)
}

func (b *ackBody) Run(ctx context.Context, p Platform, r *Report) error {
	r.Columns(
		Column{Key: "switch", Title: "SWITCH", Repeats: true}, Column{Key: "clients", Title: "CLIENTS", Repeats: true}, Column{Key: "acks", Title: "REQUESTS AN ACK, AT MOST"},
		Column{Key: "mops", Title: "CAS Mops", Format: "%.3g"}, Column{Key: "latencyUs", Title: "LATENCY us", Format: "%.2f"},
		Column{Key: "acksPerRequest", Title: "ACKS/CAS", Format: "%.3f"}, Column{Key: "ackBytes", Title: "ACK BYTES/CAS", Format: "%.1f"},
		Column{Key: "entriesPerAck", Title: "ENTRIES/ACK", Format: "%.2f"}, Column{Key: "entriesMost", Title: "MOST"},
	)
	boxes := []struct {
		name string
		line bool
	}{{"at line rate", true}, {"one DPDK core", false}}
	total := len(boxes) * len(b.clients) * len(b.acks)
	n := 0
	for _, box := range boxes {
		for clients, acks := range pairs(b.clients, b.acks) {
			l := Words{Clients: clients, Acks: acks, Switch: Switch{Action: ReplaceAtomics, Mode: Published, LineRate: box.line}}
			n++
			r.begin(n, total, "%s, %d clients, an ACK for %d requests", box.name, clients, acks)
			res, err := p.Words(ctx, l)
			if err != nil {
				return err
			}
			r.end("%.3g Mops", res.CAS/1e6)
			if res.Acks == 0 {
				r.fail("%s, %d clients: the server sent no ACK", box.name, clients)
				continue
			}
			if acks == 1 && res.AckEntriesMost > 1 {
				r.fail("%s, %d clients: a NIC without coalescing answered %.0f requests with one ACK", box.name, clients, res.AckEntriesMost)
			}
			r.Add(Label(box.name), Num(float64(clients)), Num(float64(acks)), Num(res.CAS/1e6), Num(float64(res.Mean)/1e3),
				Num(res.Acks), Num(res.AckBytes), Num(res.AckEntries/res.Acks), Num(res.AckEntriesMost))
		}
	}
	return nil
}

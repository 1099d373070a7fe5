package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// traceSnaplen is how many bytes of a packet are captured: its headers and a small payload.
const traceSnaplen = 160

func switchTraceCmd() *cobra.Command {
	flags := captureFlags{snaplen: traceSnaplen}
	cmd := &cobra.Command{
		Use:               "trace [HOST…]",
		Short:             "Print the packets that the switch changes, while they pass",
		ValidArgsFunction: everyArgument(hostNames),
		RunE:              func(cmd *cobra.Command, links []string) error { return runTrace(cmd, links, &flags) },
	}
	flags.define(cmd)
	lineFlag(cmd)
	return cmd
}

func runTrace(cmd *cobra.Command, links []string, flags *captureFlags) error {
	query, err := flags.query(cmd, links)
	if err != nil {
		return err
	}
	names, err := namesOf(cmd)
	if err != nil {
		return err
	}
	query.Set("commented", "1")
	stream, err := openCapture(cmd, query)
	if err != nil {
		return err
	}
	defer stream.Close() // the stream is only read
	var program switchd.ProgramInfo
	if err := askBox(cmd, http.MethodGet, "/program", nil, &program); err != nil {
		return err
	}
	defer flags.tellWait(cmd, "tracing", links)()
	t := tracer{out: cmd.OutOrStdout(), names: names, json: wantJSON(cmd), taken: "taken by " + program.Name}
	err = t.run(stream, flags.count)
	if errors.Is(err, context.Canceled) || err != nil && cmd.Context().Err() != nil {
		err = nil // the command was interrupted, which is the usual end
	}
	return err
}

// endPatience is how long an interrupted command waits for the rest of its capture.
const endPatience = 3 * time.Second

// openCapture starts a capture at the switch that has the links.
func openCapture(cmd *cobra.Command, query url.Values) (io.ReadCloser, error) {
	r, paths, err := rackOf(cmd)
	if err != nil {
		return nil, err
	}
	at, err := switchOfLinks(cmd, r, query["link"])
	if err != nil {
		return nil, err
	}
	return openCaptureAt(cmd, paths, at, query)
}

// openCaptureAt starts a capture at a switch. If the command is interrupted, the switch ends the
// capture; the stream still has all packets that were captured before.
func openCaptureAt(cmd *cobra.Command, paths rackfile.Paths, at string, query url.Values) (io.ReadCloser, error) {
	client := control.NewClient(paths.Socket(at))
	if err := awake(cmd.Context(), client, at); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())
	query.Set("name", name)
	ctx, cancel := context.WithCancel(context.WithoutCancel(cmd.Context()))
	stream, err := client.Stream(ctx, http.MethodGet, "/capture?"+query.Encode(), nil)
	if err != nil {
		cancel()
		return nil, withNode(err, at)
	}
	context.AfterFunc(cmd.Context(), func() {
		time.AfterFunc(endPatience, cancel)
		if client.Call(ctx, http.MethodPost, "/capture/"+name+"/end", nil, nil) != nil {
			cancel() // the switch or the capture has ended
		}
	})
	return &captureStream{stream, cancel}, nil
}

// captureStream is the stream of a capture. Close also ends the request to the switch.
type captureStream struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (s *captureStream) Close() error {
	defer s.cancel()
	return s.ReadCloser.Close()
}

type tracer struct {
	out   io.Writer
	names rackfile.Names
	json  bool
	first int64 // time of the first packet
	// taken is the switch's comment on a packet that the switch has consumed and replaced by
	// another one.
	taken string
	// came holds the comments of the last rewritten packets that were shown on their ingress link.
	// These packets are not shown again on their egress link.
	came [maxCame]string
	next int
}

// maxCame bounds how many other packets may be captured between the two captures of a rewritten
// packet.
const maxCame = 64

// again reports whether the packet was already shown on another link. The switch's comments on a
// packet are equal on both links except for the ends of the comments, which name the links.
func (t *tracer) again(p *pcapng.Packet) bool {
	what, _, _ := strings.Cut(strings.Join(p.Comments, "; "), ", to ")
	what, _, _ = strings.Cut(what, ", from ")
	if strings.HasSuffix(p.Name, " up") {
		t.came[t.next%maxCame] = what
		t.next++
		return false
	}
	i := slices.Index(t.came[:], what)
	if i < 0 || what == "" {
		return false
	}
	t.came[i] = ""
	return true
}

type traceEvent struct {
	// Time is when the switch captured the packet, in RFC 3339.
	Time time.Time `json:"time"`
	Link string    `json:"link"`
	Dir  string    `json:"dir"`
	From string    `json:"from"`
	To   string    `json:"to"`
	// Opcode, QPN and PSN of the packet on this link; Opcode is "" if it is not a RoCEv2 packet.
	Opcode  string   `json:"opcode"`
	QPN     wire.QPN `json:"qpn"`
	PSN     wire.PSN `json:"psn"`
	Comment string   `json:"comment"`
}

func (t *tracer) run(stream io.Reader, limit uint64) error {
	r, err := pcapng.NewReader(stream)
	if err != nil {
		return err
	}
	var p pcapng.Packet
	for n := uint64(0); limit == 0 || n < limit; n++ {
		err := r.Next(&p)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the trace broke off: %w; did the switch stop? See `rdmalab status`", err)
		}
		if strings.Join(p.Comments, "") == t.taken || !t.json && t.again(&p) {
			n-- // a packet that is not shown does not count
			continue
		}
		if err := t.print(&p); err != nil {
			return err
		}
	}
	return nil
}

func (t *tracer) print(p *pcapng.Packet) error {
	e := traceEvent{Time: time.Unix(0, p.Time).UTC(), Comment: strings.Join(p.Comments, "; ")}
	e.Link, e.Dir, _ = strings.Cut(p.Name, " ")
	data := p.Data
	if n := p.OrigLen - len(data); n > 0 {
		data = append(append([]byte(nil), data...), make([]byte, min(n, pcapng.MaxPacket))...) // zeros replace the bytes that the capture has cut off, so that the lengths in the headers are correct
	}
	var f wire.Frame
	if wire.ParseFrame(data, &f) == nil {
		e.From, e.To = t.names.Of(f.SrcAddr().Unmap()), t.names.Of(f.DstAddr().Unmap())
		e.Opcode, e.QPN, e.PSN = f.BTH.Opcode.String(), f.BTH.DestQP, f.BTH.PSN
	}
	if t.json {
		return json.NewEncoder(t.out).Encode(e)
	}
	if t.first == 0 {
		t.first = p.Time
	}
	what := ""
	if !strings.Contains(e.Comment, "→") && !strings.Contains(e.Comment, " psn ") { // the switch's comment does not say which packet it was
		what = "frame: "
		if e.Opcode != "" {
			what = fmt.Sprintf("%s→%s %s %#x: ", e.From, e.To, strings.TrimPrefix(e.Opcode, "RC_"), uint32(e.PSN))
		}
	}
	_, err := fmt.Fprintf(t.out, "%10.6f %-9s %s%s\n", float64(p.Time-t.first)/1e9, p.Name, what, e.Comment)
	return err
}

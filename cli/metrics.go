package cli

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/export"
	"github.com/rdmalab/rdmalab/topo/web"
)

// defaultMetrics is the address on which metrics are served.
const defaultMetrics = "127.0.0.1:9864"

func metricsCmd() *cobra.Command {
	var listen string
	var list, all bool
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Serve the counters of racks to Prometheus",
		Long: "metrics serves what status, top and counters show in the text format of Prometheus, at http://ADDRESS/metrics, until\n" +
			"it is interrupted: state of nodes and links, all counters of the NICs, traffic and drops of the switch's ports by\n" +
			"reason, tables and counters of the switch program, fault rules with their hits, clients and counters of stores. The\n" +
			"daemons are asked when a scrape comes, at most once a second; without scrapes metrics does nothing.\n\n" +
			"The rack need not be up when metrics starts, and may go away and come back: rdmalab_rack_up says so. With --all-racks,\n" +
			"all racks that are up are served; the label rack tells them apart. --list prints all metrics with their types and ends.\n\n" +
			"An example of alert rules and a Grafana dashboard are in packaging/metrics.",
		Example: "  rdmalab metrics\n" +
			"  rdmalab metrics --listen 0.0.0.0:9864 --all-racks\n" +
			"  curl -s http://127.0.0.1:9864/metrics | grep rdmalab_nic_roce_retrans_packets_total",
		SuggestFor: []string{"prometheus", "exporter"},
		Args:       cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				for _, f := range export.Families() {
					if err := say(cmd, "%s  %s  %s", f.Name, f.Type, f.Help); err != nil {
						return err
					}
				}
				return nil
			}
			name, err := rackName(cmd)
			if err != nil {
				return err
			}
			racks := func() []string { return []string{name} }
			if all {
				racks = racksUp
			}
			l, err := listenOn(listen)
			if err != nil {
				return err
			}
			mux := http.NewServeMux()
			mux.Handle("GET /metrics", export.Handler(export.New(export.Config{Version: readVersion().Version, Racks: racks})))
			mux.Handle("GET /{$}", http.RedirectHandler("/metrics", http.StatusFound))
			if err := say(cmd, "metrics at http://%s/metrics", l.Addr()); err != nil {
				return err
			}
			return web.Serve(cmd.Context(), l, mux)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", defaultMetrics, "address and port; port 0 is any free one")
	cmd.Flags().BoolVar(&all, "all-racks", false, "all racks that are up, instead of the one of --rack")
	cmd.Flags().BoolVar(&list, "list", false, "print the metrics with their types and meaning, and end")
	return cmd
}

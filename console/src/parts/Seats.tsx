// A quorum as seats: who has voted how, and whom the open seats are for.

import { type Needed, plainName, tableOf } from "../logic/seats.ts";
import { moment } from "../text/dates.ts";
import { useText } from "../text/index.ts";
import { Text } from "./Value.tsx";

export function Seats({ needed, over = false }: { needed: Needed; over?: boolean }) {
  const t = useText();
  const whole = tableOf(needed);
  // A seat that is open waits for somebody only while the question does.
  const table = over ? { ...whole, seats: whole.seats.filter((seat) => seat.state !== "open") } : whole;
  if (over && table.seats.length === 0) return null;
  if (!over && table.of <= 1 && table.seats.every((seat) => seat.state === "open")) return null;
  return (
    <section>
      <h2>
        {t.decision.seats} {!over && <span className="quiet">{t.decision.seatOf(table.filled, table.of)}</span>}
      </h2>
      <ul className="seats">
        {table.seats.map((seat, i) => (
          <li key={i} className={seat.state}>
            {seat.vote ? (
              <>
                <b>{plainName(seat.who)}</b>
                {seat.vote.on_behalf_of && t.app.aside(plainName(seat.vote.on_behalf_of))}
                {t.app.colon}
                {t.decision.options[seat.vote.decision] ?? seat.vote.decision}
                {seat.vote.rule && t.app.aside(t.decision.throughRule(seat.vote.rule.slice(0, 8)))}
                {seat.state === "lapsed" && t.app.aside(t.decision.lapsed)}
                <div className="small">
                  <time dateTime={seat.vote.at}>{moment(seat.vote.at)}</time>
                  {seat.vote.reason && (
                    <div>
                      <Text text={seat.vote.reason} />
                    </div>
                  )}
                </div>
              </>
            ) : (
              t.decision.seatOpen(seat.who ? plainName(seat.who) : t.decision.seatAnybody)
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

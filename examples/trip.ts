// Which of these cities is warm enough for a walk, and is there a train?
interface Weather { city: string; celsius: number }

const cities: string[] = ["Oslo", "Lisbon", "Rome"];
const weather: Weather[] = await Promise.all(cities.map((city) => tools.weather({ city })));
const warm = weather.filter(({ celsius }) => celsius >= 15);

const trips = [];
for (const { city, celsius } of warm) {
  const found = await MCP.rail.findTrains({ to: city });
  trips.push({ city, celsius, trains: found.structuredContent.trains });
}
text(`${warm.length} of ${cities.length} cities are warm enough`);
return trips;
